"""Uniformly random actions, as scalar functions: for a fleet that acts by itself, without an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from velocirl.engine import random

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment


def sampler(environment: Environment) -> Callable[..., Any]:
    """The function `(actions, i, mask, rng)` that draws a legal action for copy i."""
    space, masked = environment.action, environment.legal is not None
    if isinstance(space, Discrete):
        return _masked_discrete(int(space.n)) if masked else _discrete(int(space.n))
    if isinstance(space, MultiDiscrete):
        return _multi_discrete(tuple(int(count) for count in space.nvec), masked)
    bounds: Box = space  # pyright: ignore[reportAssignmentType] - the only kind left
    # Where the space has no bounds, "uniform" has no meaning; a unit interval keeps the action finite.
    low = tuple(float(bound) for bound in np.where(np.isfinite(bounds.low), bounds.low, -1.0))
    high = tuple(float(bound) for bound in np.where(np.isfinite(bounds.high), bounds.high, 1.0))
    return _box(low, high)


def draw_legal(mask, first, count, rng):
    """The index within [0, count) of a random set entry of mask[first : first + count]; 0 if none is set."""
    legal = 0
    for k in range(count):
        legal += 1 if mask[first + k] else 0
    left = random.integer(rng, 0, legal)
    chosen = 0
    for k in range(count):
        if mask[first + k]:
            if left == 0:
                chosen = k
            left -= 1
    return chosen


def _discrete(count: int) -> Callable[..., Any]:
    def sample(actions, i, mask, rng):  # noqa: ARG001
        actions[i] = random.integer(rng, 0, count)

    return sample


def _masked_discrete(count: int) -> Callable[..., Any]:
    def sample(actions, i, mask, rng):
        actions[i] = draw_legal(mask, 0, count, rng)

    return sample


def _multi_discrete(counts: tuple[int, ...], masked: bool) -> Callable[..., Any]:
    def sample(actions, i, mask, rng):
        first = 0
        for k in range(len(counts)):
            actions[i, k] = draw_legal(mask, first, counts[k], rng) if masked else random.integer(rng, 0, counts[k])
            first += counts[k]

    return sample


def _box(low: tuple[float, ...], high: tuple[float, ...]) -> Callable[..., Any]:
    def sample(actions, i, mask, rng):  # noqa: ARG001
        for k in range(len(low)):
            actions[i, k] = random.uniform(rng, low[k], high[k])

    return sample
