"""How long episodes can last, which says how far an error spreads where nothing is discounted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from velocirl.tabular.planning.backups import Backup
from velocirl.tabular.planning.models import TabularModel


def undiscounted_horizon(model: TabularModel, values: NDArray[np.float64], doubt: float, max_sweeps: int) -> float:
    """Values that one sweep leaves in `doubt` are off by at most this many times that; inf if unknown."""
    worthwhile = worthwhile_steps(model, values, doubt)
    return worthwhile if math.isfinite(worthwhile) else longest_episode(model, max_sweeps)


def worthwhile_steps(model: TabularModel, values: NDArray[np.float64], doubt: float) -> float:
    """The most steps that can be worth while, if each step that ends nothing costs something; otherwise inf.

    With a cost of c for each, and at most M for the end, whoever makes more than (c + M - V(s)) / c steps on average
    gets less than V(s).
    """
    if not model.terminated.any() or model.terminated.all():
        return math.inf
    cost = -float(model.rewards[~model.terminated].max())
    end = float(model.rewards[model.terminated].max())
    return (cost + end - float(values.min())) / (cost - doubt) if cost > doubt else math.inf


def longest_episode(model: TabularModel, max_sweeps: int) -> float:
    """No policy makes more steps on average than this; inf where so many sweeps do not tell.

    If L(s) is the longest within some number of steps, and one step more makes it longer by d < 1 at the most, then
    L / (1 - d) is an upper bound, since it is at least 1 + the largest expectation of itself one step later.
    """
    one_more = Backup(replace(model, rewards=np.ones(len(model.rewards))), 1.0)
    length = np.zeros(model.states)
    for _ in range(max_sweeps):
        shorter, length = length, one_more(length).max(axis=1)
        growth = float((length - shorter).max())
        if growth <= 0.5:
            return float(length.max()) / (1.0 - growth)
    return math.inf
