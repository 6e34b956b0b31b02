"""Numbering of states: the integers of an observation are the digits of one number."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

MOST_STATES = 2**62  # state numbers are 64-bit
LARGEST_PART = 2**24  # rows of Dict and Tuple are single precision, exact for integers up to this one


class States(NamedTuple):
    """Numbering of observations."""

    sizes: tuple[int, ...]  # number of values of each integer of an observation,
    starts: tuple[int, ...]  # and the lowest of them
    count: int  # pyright: ignore[reportIncompatibleMethodOverride] - of states, not of what a tuple holds
    encode: Callable[..., Any]  # (observation row) -> the state's number, or -1 outside of the space


def states_of(space: Space[Any], name: str = "this environment") -> States:
    """Return the numbering of a space of integers: Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of them."""
    sizes, starts = _digits(space, space, name)
    largest = max((max(-start, start + size - 1) for size, start in zip(sizes, starts, strict=True)), default=0)
    if isinstance(space, (Dict, Tuple)) and largest > LARGEST_PART:
        raise ValueError(
            f"a part of the observations of {name} goes up to {largest:,}, and within a Dict or Tuple whole numbers are"
            f" exact up to {LARGEST_PART:,} (2^24): make it several smaller ones, or use MultiDiscrete observations"
        )
    count = prod(sizes)
    if count > MOST_STATES:
        raise ValueError(
            f"{name} has about 2^{count.bit_length() - 1} states, and a table can number 2^62: use DQN or PPO, or"
            " coarser observations"
        )
    return States(sizes, starts, count, encoder(sizes, starts))


def encoder(sizes: tuple[int, ...], starts: tuple[int, ...]) -> Callable[..., Any]:
    """Compose `encode(observation)`: the integers of an observation as the digits of one number, the first highest."""
    width = len(sizes)
    weights = tuple(prod(sizes[k + 1 :]) for k in range(width))

    def encode(observation):
        number = 0
        outside = 0
        for k in range(width):
            digit = np.int64(observation[k]) - starts[k]
            number += digit * weights[k]
            outside |= digit | (sizes[k] - 1 - digit)  # negative as soon as one digit is out of range
        return number if outside >= 0 else -1

    return encode


def decode(states: States, numbers: Any) -> NDArray[np.int64]:
    """Return the observations of states, (states, digits)."""
    rest = np.atleast_1d(np.asarray(numbers, np.int64))
    digits = np.empty((len(rest), len(states.sizes)), np.int64)
    for k in reversed(range(len(states.sizes))):
        rest, digits[:, k] = np.divmod(rest, states.sizes[k])
    return digits + np.array(states.starts, np.int64)


def _digits(part: Space[Any], space: Space[Any], name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(part, Discrete):
        return (int(part.n),), (int(part.start),)
    if isinstance(part, MultiDiscrete):
        return tuple(map(int, part.nvec.ravel())), tuple(map(int, part.start.ravel()))
    if isinstance(part, MultiBinary):
        size = prod(part.shape)
        return (2,) * size, (0,) * size
    if isinstance(part, (Dict, Tuple)):
        children = part.spaces.values() if isinstance(part, Dict) else part.spaces
        pairs = [_digits(child, space, name) for child in children]
        return tuple(n for sizes, _ in pairs for n in sizes), tuple(n for _, starts in pairs for n in starts)
    raise ValueError(
        f"a table needs observations of whole numbers (Discrete, MultiDiscrete), and those of {name} are {space}:"
        " use DQN, SAC or PPO, or an observation wrapper that makes them discrete"
    )
