"""Sampling of uniformly random actions by scalar functions, for fleets without an agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from velocirl.engine import random
from velocirl.engine.action_parts import Part, has_parts, in_turn, parts_of, writer
from velocirl.engine.compiler.registers import row

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment


def sampler(environment: Environment) -> Callable[..., Any]:
    """Make the function `(copies, i)` that samples a random legal action for environment i."""
    space, masked = environment.action, environment.legal is not None
    if isinstance(space, Discrete):
        return _masked_discrete(int(space.n)) if masked else _discrete(int(space.n))
    if isinstance(space, MultiDiscrete):
        counts = tuple(int(count) for count in space.nvec)
        return _masked_multi_discrete(counts) if masked else _multi_discrete(counts)
    if has_parts(space):
        return _in_parts(parts_of(space), masked)
    return _box(*_bounds(space))


def draw_legal(mask, first, count, rng):
    """Return the index within [0, count) of a random set entry of mask[first : first + count]; 0 if none is set."""
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


def _bounds(space: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the bounds for sampling a Box."""
    bounds: Box = space
    # An unbounded uniform distribution does not exist; an interval of length 2 keeps the action finite.
    low = np.where(np.isfinite(bounds.low), bounds.low, np.where(np.isfinite(bounds.high), bounds.high - 2.0, -1.0))
    high = np.where(np.isfinite(bounds.high), bounds.high, low + 2.0)
    return tuple(map(float, low.reshape(-1))), tuple(map(float, high.reshape(-1)))


def _discrete(count: int) -> Callable[..., Any]:
    def choose(copies, i):
        copies.action[i] = random.integer(row(copies.rng, i), 0, count)

    return choose


def _masked_discrete(count: int) -> Callable[..., Any]:
    def choose(copies, i):
        copies.action[i] = draw_legal(row(copies.mask, i), 0, count, row(copies.rng, i))

    return choose


def _multi_discrete(counts: tuple[int, ...]) -> Callable[..., Any]:
    def choose(copies, i):
        action = row(copies.action, i)
        for k in range(len(counts)):
            action[k] = random.integer(row(copies.rng, i), 0, counts[k])

    return choose


def _masked_multi_discrete(counts: tuple[int, ...]) -> Callable[..., Any]:
    def choose(copies, i):
        action = row(copies.action, i)
        first = 0
        for k in range(len(counts)):
            action[k] = draw_legal(row(copies.mask, i), first, counts[k], row(copies.rng, i))
            first += counts[k]

    return choose


def _box(low: tuple[float, ...], high: tuple[float, ...]) -> Callable[..., Any]:
    def choose(copies, i):
        action = row(copies.action, i)
        for k in range(len(low)):
            action[k] = random.uniform(row(copies.rng, i), low[k], high[k])

    return choose


def _in_parts(parts: list[Part], masked: bool) -> Callable[..., Any]:
    firsts = np.cumsum([0, *(sum(part.counts) for part in parts)]).tolist()  # where the mask of each part begins
    draw = in_turn([_part(part, masked, first) for part, first in zip(parts, firsts, strict=False)])

    def choose(copies, i):
        draw(copies.action[i], row(copies.mask, i), row(copies.rng, i))

    return choose


def _part(part: Part, masked: bool, first: int) -> Callable[..., Any]:
    """Make `draw(action, mask, rng)` for one part."""
    put, counts = writer(part), part.counts
    low, high = ((), ()) if counts else _bounds(part.space)

    def draw_choices(action, mask, rng):  # noqa: ARG001 - as where there is a mask
        for k in range(len(counts)):
            put(action, k, random.integer(rng, 0, counts[k]))

    def draw_legal_choices(action, mask, rng):
        place = first
        for k in range(len(counts)):
            put(action, k, draw_legal(mask, place, counts[k], rng))
            place += counts[k]

    def draw_numbers(action, mask, rng):  # noqa: ARG001
        for k in range(len(low)):
            put(action, k, random.uniform(rng, low[k], high[k]))

    return draw_numbers if not counts else draw_legal_choices if masked else draw_choices
