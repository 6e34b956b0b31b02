"""From an observation to the input row of a network: flat single-precision numbers, or one-hot codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

LIMIT = 10.0  # normalised numbers further out than this say no more than "far out"


class Encoding(NamedTuple):
    """How one observation becomes one input row."""

    inputs: int  # the width of the row
    # (observation, centre, inverse_scale, encoded) -> 0, or NaN where something in the observation is not finite
    encode: Callable[..., Any]
    normalises: bool  # whether centre and inverse_scale are used
    at: Callable[..., Any]  # (observation, j) -> the number that becomes input j, where it normalises


def encoding_for(space: Space[Any], normalise: bool) -> Encoding:
    """The encoding of an observation space. Only numbers are normalised; codes are not numbers."""
    if isinstance(space, Discrete):
        return _one_hot((int(space.n),), (int(space.start),))
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1:
        return _one_hot(tuple(map(int, space.nvec)), tuple(map(int, np.broadcast_to(space.start, space.nvec.shape))))
    if isinstance(space, (Box, MultiBinary)):
        factor = 1 / 255 if space.dtype == np.uint8 else 1.0
        size, at = int(np.prod(space.shape)), number_at(space.shape)
        if size == 0:
            raise ValueError(f"an observation of {space} has no numbers to learn from")
        if normalise and isinstance(space, Box):
            return Encoding(size, _normalised(size, at), True, at)
        return Encoding(size, _numbers(size, factor, at), False, at)
    raise ValueError(
        f"no network reads observations of {space}: use Box, Discrete, MultiDiscrete or MultiBinary, or flatten it with"
        " gymnasium.wrappers.FlattenObservation"
    )


def number_at(shape: tuple[int, ...]) -> Callable[..., Any]:
    """`at(observation, j)`: number j of an observation, counted row by row."""
    if len(shape) == 1:
        return _in_a_row
    if len(shape) == 2:
        return _in_a_table(shape[1])
    if len(shape) == 3:
        return _in_a_stack(shape[1], shape[2])
    raise ValueError(f"no network reads observations of {len(shape)} dimensions; flatten them to one, two or three")


def _in_a_row(observation, j):
    return observation[j]


def _in_a_table(columns: int) -> Callable[..., Any]:
    def at(observation, j):
        return observation[j // columns, j % columns]

    return at


def _in_a_stack(rows: int, columns: int) -> Callable[..., Any]:
    def at(observation, j):
        return observation[j // (rows * columns), j // columns % rows, j % columns]

    return at


def _numbers(size: int, factor: float, at: Callable[..., Any]) -> Callable[..., Any]:
    def encode(observation, centre, inverse_scale, encoded):  # noqa: ARG001 - every encoding has the same signature
        check = np.float32(0)
        for j in range(size):
            number = np.float32(at(observation, j))
            check += number * 0
            encoded[j] = number * factor
        return check

    return encode


def _normalised(size: int, at: Callable[..., Any]) -> Callable[..., Any]:
    def encode(observation, centre, inverse_scale, encoded):
        check = np.float32(0)
        for j in range(size):
            number = np.float32(at(observation, j))
            check += number * 0  # here, since an infinite number would not be seen once it is held within the limits
            number = (number - centre[j]) * inverse_scale[j]
            encoded[j] = LIMIT if number > LIMIT else (-LIMIT if number < -LIMIT else number)
        return check

    return encode


def _one_hot(counts: tuple[int, ...], starts: tuple[int, ...]) -> Encoding:
    def encode(observation, centre, inverse_scale, encoded):  # noqa: ARG001
        first = 0
        for part in range(len(counts)):
            for k in range(counts[part]):
                encoded[first + k] = 1.0 if observation[part] == starts[part] + k else 0.0
            first += counts[part]
        return np.float32(0)

    return Encoding(sum(counts), encode, False, _in_a_row)
