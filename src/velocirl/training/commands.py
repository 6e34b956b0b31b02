"""From what a policy drew to what an environment gets: bounds are the environment's, log-probabilities the policy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from velocirl.engine.registers import row


def writer_for(space: Space[Any]) -> Callable[..., Any]:
    """`write(actions, i, drawn)`: write row i of an array of actions from the row that was drawn.

    A policy over a bounded Box acts in [-1, 1]: its numbers are clipped to that and stretched to the bounds, so that a
    valve from 0 to 350 is as easy to learn as a torque from -1 to 1. Where there is no bound they pass unchanged.
    """
    if isinstance(space, Discrete):
        return _choice(int(space.start))
    if not isinstance(space, Box):
        return _choices(tuple(map(int, np.broadcast_to(getattr(space, "start", 0), space.shape or (1,)))))
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        centre, reach = np.where(bounded, (low + high) / 2, 0.0), np.where(bounded, (high - low) / 2, 1.0)
    columns = np.where(bounded, -1.0, low), np.where(bounded, 1.0, high), centre, reach
    return _stretched(*(tuple(map(float, column)) for column in columns))


def _choice(start: int) -> Callable[..., Any]:
    def write(actions, i, drawn):
        actions[i] = drawn[0] + start

    return write


def _choices(starts: tuple[int, ...]) -> Callable[..., Any]:
    def write(actions, i, drawn):
        action = row(actions, i)
        for k in range(len(starts)):
            action[k] = drawn[k] + starts[k]

    return write


def _stretched(
    low: tuple[float, ...], high: tuple[float, ...], centre: tuple[float, ...], reach: tuple[float, ...]
) -> Callable[..., Any]:
    def write(actions, i, drawn):
        action = row(actions, i)
        for k in range(len(low)):
            action[k] = centre[k] + reach[k] * min(max(drawn[k], low[k]), high[k])

    return write
