"""Bounds on episode length, which limit how far an error spreads without discounting."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from velocirl.tabular.planning.backups import Backup
from velocirl.tabular.planning.models import TabularModel


def undiscounted_horizon(model: TabularModel, values: NDArray[np.float64], doubt: float, max_sweeps: int) -> float:
    """Return a factor: values left in `doubt` by one sweep are off by at most this times `doubt`; inf if unknown."""
    worthwhile = worthwhile_steps(model, values, doubt)
    return worthwhile if math.isfinite(worthwhile) else longest_episode(model, max_sweeps)


def worthwhile_steps(model: TabularModel, values: NDArray[np.float64], doubt: float) -> float:
    """Return the most steps that can pay off if each non-final step has a cost; otherwise inf.

    With a cost of c per step and at most M for the end, a policy that takes more than (c + M - V(s)) / c steps on
    average gets less than V(s).
    """
    if not model.terminated.any() or model.terminated.all():
        return math.inf
    cost = -float(model.rewards[~model.terminated].max())
    end = float(model.rewards[model.terminated].max())
    return (cost + end - float(values.min())) / (cost - doubt) if cost > doubt else math.inf


def longest_episode(model: TabularModel, max_sweeps: int) -> float:
    """Return an upper bound on the average episode length of any policy; inf if `max_sweeps` do not find one.

    Let L(s) be the longest within some number of steps. If one more step makes it longer by at most d < 1, then L / (1
    - d) is an upper bound: it is at least 1 + the largest expectation of itself one step later.
    """
    one_more = Backup(replace(model, rewards=np.ones(len(model.rewards))), 1.0)
    length = np.zeros(model.states)
    for _ in range(max_sweeps):
        shorter, length = length, one_more(length).max(axis=1)
        growth = float((length - shorter).max())
        if growth <= 0.5:
            return float(length.max()) / (1.0 - growth)
    return math.inf
