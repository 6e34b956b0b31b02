"""Composite actions, Dict and Tuple: each part is a field of a record, as an environment's state has fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray


class Part(NamedTuple):
    """One part of an action: one choice, several choices, or real numbers."""

    path: tuple[Any, ...]  # keys and indices that lead to it
    space: Space[Any]
    shape: tuple[int, ...]
    counts: tuple[int, ...]  # the options of each of its choices; empty for real numbers

    @property
    def name(self) -> str:
        """Name of the record's field: "kind", "0", "arm/left"."""
        return "/".join(map(str, self.path))

    @property
    def size(self) -> int:
        """Number of its choices or real numbers."""
        return prod(self.shape)

    @property
    def starts(self) -> tuple[int, ...]:
        """First option of each of its choices."""
        return tuple(np.broadcast_to(getattr(self.space, "start", 0), self.shape).reshape(-1).tolist())


def has_parts(space: Space[Any]) -> bool:
    """Return whether actions are dicts or tuples."""
    return isinstance(space, (Dict, Tuple))


def parts_of(space: Space[Any], path: tuple[Any, ...] = ()) -> list[Part]:
    """Return the parts of a space, in its own order; for a space without parts, the space itself."""
    if isinstance(space, (Dict, Tuple)):
        children = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        return [part for key, child in children for part in parts_of(child, (*path, key))]
    return [Part(path, space, tuple(space.shape or ()), _counts(space))]


def counts_of(space: Space[Any]) -> tuple[int, ...]:
    """Return the number of options of each choice of an action, in the order of a mask's entries."""
    return tuple(count for part in parts_of(space) for count in part.counts)


def check_parts(space: Space[Any]) -> list[Part]:
    """Return the parts of a Dict or Tuple; raises ValueError for a part in which no policy can act."""
    parts = parts_of(space)
    for part in parts:
        numbers = isinstance(part.space, Box) and part.space.dtype.kind == "f"
        if not (numbers or part.counts) or part.size == 0:
            raise ValueError(
                f"part {part.name!r} is {part.space}, and parts of an action are Discrete, MultiDiscrete, MultiBinary"
                " or a Box of floats: write it as one of those"
            )
    if not parts:
        raise ValueError(f"{space} has no parts, so that there is nothing to do: add one")
    return parts


def action_type(space: Space[Any], *, own: bool = False) -> np.dtype[Any]:
    """Return the record type of a composite action: int32 and float32 or, with `own`, the space's types."""
    fields = [(part.name, part.space.dtype if own else _narrow(part), part.shape) for part in parts_of(space)]
    return np.dtype(fields, align=True)


def as_given(space: Space[Any], records: NDArray[Any]) -> Any:
    """Return records (...) of a space in Gymnasium's batched form: dicts and tuples of arrays, sharing their memory."""

    def nest(part: Space[Any], path: tuple[Any, ...]) -> Any:
        if isinstance(part, Dict):
            return {key: nest(child, (*path, key)) for key, child in part.spaces.items()}
        if isinstance(part, Tuple):
            return tuple(nest(child, (*path, index)) for index, child in enumerate(part.spaces))
        return records[Part(path, part, (), ()).name]

    return nest(space, ())


def writer(part: Part) -> Callable[..., Any]:
    """Make `put(action, k, number)`, which writes a part's number k into an action's record."""
    name, set_number = part.name, _setter(part.shape)

    def put_alone(action, k, number):  # noqa: ARG001 - as where there are several
        action[name] = number

    def put(action, k, number):
        set_number(action[name], k, number)

    return put if part.shape else put_alone


def _setter(shape: tuple[int, ...]) -> Callable[..., Any]:
    """Make `set_number(array, k, number)`, which writes element k of an array; CUDA cannot flatten arrays."""
    if len(shape) < 2:

        def set_number(array, k, number):
            array[k] = number

        return set_number
    width, set_within = prod(shape[1:]), _setter(shape[1:])

    def set_in_row(array, k, number):
        set_within(array[k // width], k % width, number)

    return set_in_row


def in_turn(functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Make a function of three arguments that calls several functions; compilers accept no list of functions."""
    first, others = functions[0], functions[1:]
    if not others:
        return first
    rest = in_turn(others)

    def call(one, two, three):
        first(one, two, three)
        rest(one, two, three)

    return call


def _counts(space: Space[Any]) -> tuple[int, ...]:
    if isinstance(space, Discrete):
        return (int(space.n),)
    if isinstance(space, MultiDiscrete):
        return tuple(int(count) for count in space.nvec.reshape(-1))
    return (2,) * prod(space.shape) if isinstance(space, MultiBinary) else ()


def _narrow(part: Part) -> type[np.generic]:
    return np.int32 if part.counts else np.float32
