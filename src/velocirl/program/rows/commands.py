"""Conversion of policy actions to environment actions: bounds are the environment's, log-probabilities the policy's.

A policy over a bounded Box acts in [-1, 1]. Its numbers are clipped to this range and scaled to the bounds, so that a
valve from 0 to 350 is as easy to learn as a torque from -1 to 1. Where there is no bound, or one too huge to serve as
a scale, numbers pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

from velocirl.engine.action_parts import Part, has_parts, in_turn, parts_of, writer
from velocirl.networks.encoding import are_scale

LOW, HIGH, CENTRE, REACH = range(4)  # the rows of `bounds`


def choose(action, row, starts):
    """Shift a policy's choices, which count from 0, to the first value of the space."""
    for k in range(len(starts)):
        action[k] = row.action[k] + starts[k]


def stretch(action, row, bounds):
    """Clip numbers to [-1, 1] and scale them to the bounds."""
    for k in range(len(action)):
        held = min(max(row.action[k], bounds[LOW, k]), bounds[HIGH, k])
        action[k] = bounds[CENTRE, k] + bounds[REACH, k] * held


def command_for(space: Space[Any]) -> tuple[Callable[..., Any], NDArray[Any]]:
    """Return `command(action, row, table)` for an action space, and its table (1, ...)."""
    if has_parts(space):
        return _command_of_parts(parts_of(space))
    if not isinstance(space, Box):
        starts = np.broadcast_to(getattr(space, "start", 0), space.shape or (1,))
        return choose, np.array(starts, np.int64)[None]
    return stretch, bounds_of(space)[None]


def bounds_of(space: Box) -> NDArray[np.float32]:
    """Return the bounds of the numbers of a Box, shape (4, numbers)."""
    low, high = (bound.astype(np.float64).reshape(-1) for bound in (space.low, space.high))
    bounded = are_scale(low, high)
    with np.errstate(invalid="ignore"):
        centre, reach = np.where(bounded, (low + high) / 2, 0.0), np.where(bounded, (high - low) / 2, 1.0)
    rows = [np.where(bounded, -1.0, low), np.where(bounded, 1.0, high), centre, reach]
    table = np.array(rows, np.float32)
    centre, reach = table[CENTRE], table[REACH]
    while (beyond := bounded & (reach > 0) & ((centre + reach > high) | (centre - reach < low))).any():
        reach[beyond] = np.nextafter(reach[beyond], np.float32(0))  # rounding may put the ends outside of the space
    return table


def unstretch(space: Box, actions: NDArray[Any]) -> NDArray[np.float32]:
    """Return the numbers (rows, numbers) that `stretch` maps to these actions; 0 where low and high are equal."""
    bounds = bounds_of(space)
    reach = np.where(bounds[REACH] > 0, bounds[REACH], np.float32(1))
    return ((actions.reshape(len(actions), -1) - bounds[CENTRE]) / reach).astype(np.float32)


def action_rows(space: Space[Any], actions: NDArray[Any]) -> NDArray[Any]:
    """Return actions of a space as a policy writes them: numbers within [-1, 1], choices from 0 on."""
    rows = actions.reshape(len(actions), -1)
    if not isinstance(space, Box):
        return rows - np.asarray(getattr(space, "start", 0)).reshape(-1)
    bounds = bounds_of(space)
    return np.clip(unstretch(space, rows), bounds[LOW], bounds[HIGH])


def _command_of_parts(parts: list[Part]) -> tuple[Callable[..., Any], NDArray[Any]]:
    """Return command and table for a composite action; a policy's row has all choices first, then all numbers."""
    choices = sum(len(part.counts) for part in parts)
    boxes = [bounds_of(part.space) for part in parts if isinstance(part.space, Box)]
    commands, option, number = [], 0, 0
    for part in parts:
        if part.counts:
            commands.append(_choosing(part, option))
            option += part.size
        else:
            commands.append(_stretching(part, choices + number, number))
            number += part.size
    return in_turn(commands), np.concatenate([*boxes, np.zeros((4, 0 if boxes else 1), np.float32)], axis=1)[None]


def _choosing(part: Part, first: int) -> Callable[..., Any]:
    put, starts = writer(part), part.starts

    def choose_part(action, row, table):  # noqa: ARG001 - as for numbers
        for k in range(len(starts)):
            put(action, k, int(row.action[first + k]) + starts[k])

    return choose_part


def _stretching(part: Part, first: int, column: int) -> Callable[..., Any]:
    put, size = writer(part), part.size

    def stretch_part(action, row, table):
        for k in range(size):
            held = min(max(row.action[first + k], table[LOW, column + k]), table[HIGH, column + k])
            put(action, k, table[CENTRE, column + k] + table[REACH, column + k] * held)

    return stretch_part
