"""From what a policy drew to what an environment gets: bounds are the environment's, log-probabilities the policy's.

A policy over a bounded Box acts in [-1, 1]: its numbers are clipped to that and stretched to the bounds, so that a
valve from 0 to 350 is as easy to learn as a torque from -1 to 1. Where there is no bound they pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

LOW, HIGH, CENTRE, REACH = range(4)  # the rows of `bounds`


def choose(action, row, starts):
    """Choices count from 0 for a policy, and from where the space says for the environment."""
    for k in range(len(starts)):
        action[k] = row.action[k] + starts[k]


def stretch(action, row, bounds):
    """Numbers within [-1, 1] stretched to the bounds."""
    for k in range(len(action)):
        held = min(max(row.action[k], bounds[LOW, k]), bounds[HIGH, k])
        action[k] = bounds[CENTRE, k] + bounds[REACH, k] * held


def command_for(space: Space[Any]) -> tuple[Callable[..., Any], NDArray[Any]]:
    """`command(action, row, table)` for an action space, and its table (1, ...)."""
    if not isinstance(space, Box):
        starts = np.broadcast_to(getattr(space, "start", 0), space.shape or (1,))
        return choose, np.array(starts, np.int64)[None]
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        centre, reach = np.where(bounded, (low + high) / 2, 0.0), np.where(bounded, (high - low) / 2, 1.0)
    rows = [np.where(bounded, -1.0, low), np.where(bounded, 1.0, high), centre, reach]
    return stretch, np.array(rows, np.float32)[None]
