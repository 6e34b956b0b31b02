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


def encoding_for(space: Space[Any], normalise: bool) -> Encoding:
    """The encoding of an observation space. Only numbers are normalised; codes are not numbers."""
    if isinstance(space, Discrete):
        return _one_hot((int(space.n),), (int(space.start),))
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1:
        return _one_hot(tuple(map(int, space.nvec)), tuple(map(int, np.broadcast_to(space.start, space.nvec.shape))))
    if isinstance(space, (Box, MultiBinary)):
        factor = 1 / 255 if space.dtype == np.uint8 else 1.0
        size = int(np.prod(space.shape))
        flatten = one_dimension if len(space.shape) == 1 else flat
        if size == 0:
            raise ValueError(f"an observation of {space} has no numbers to learn from")
        if normalise and isinstance(space, Box):
            return Encoding(size, _normalised(size, flatten), True)
        return Encoding(size, _numbers(size, factor, flatten), False)
    raise ValueError(
        f"no network reads observations of {space}: use Box, Discrete, MultiDiscrete or MultiBinary, or flatten it with"
        " gymnasium.wrappers.FlattenObservation"
    )


def one_dimension(observation):
    return observation


def flat(observation):
    return observation.ravel()


def _numbers(size: int, factor: float, flatten: Callable[..., Any]) -> Callable[..., Any]:
    def encode(observation, centre, inverse_scale, encoded):  # noqa: ARG001 - every encoding has the same signature
        numbers = flatten(observation)
        check = np.float32(0)
        for j in range(size):
            number = np.float32(numbers[j])
            check += number * 0
            encoded[j] = number * factor
        return check

    return encode


def _normalised(size: int, flatten: Callable[..., Any]) -> Callable[..., Any]:
    def encode(observation, centre, inverse_scale, encoded):
        numbers = flatten(observation)
        check = np.float32(0)
        for j in range(size):
            number = np.float32(numbers[j])
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

    return Encoding(sum(counts), encode, False)
