"""Observations as arrays for compiled code: the space's own array, or one raw row for Dict and Tuple.

A raw row has the flattened leaves of the space in its order, a Discrete as one number, a MultiDiscrete as its numbers;
all as float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

WHOLE_LIMIT = 2**24  # single precision is exact for integers up to this one


class Leaf(NamedTuple):
    """Space of arrays within a space, and its offset in the raw row."""

    name: str  # "camera", "arm/left", "0"; "" if the space itself is the leaf
    path: tuple[Any, ...]  # keys and indices that lead to it
    space: Space[Any]
    shape: tuple[int, ...]
    start: int
    size: int


def is_structured(space: Space[Any]) -> bool:
    """Return whether observations are dicts or tuples."""
    return isinstance(space, (Dict, Tuple))


def leaves_of(space: Space[Any]) -> list[Leaf]:
    """Return the leaves in the space's own order; raise for a space without a fixed size, by name."""
    leaves: list[Leaf] = []

    def grow(part: Space[Any], path: tuple[Any, ...]) -> None:
        if isinstance(part, Dict):
            for key, child in part.spaces.items():
                grow(child, (*path, key))
        elif isinstance(part, Tuple):
            for index, child in enumerate(part.spaces):
                grow(child, (*path, index))
        else:
            leaf = _leaf(part, path, leaves[-1].start + leaves[-1].size if leaves else 0)
            if any(leaf.name == other.name for other in leaves):
                raise ValueError(f"two parts of {space} are called {leaf.name!r}; rename one")
            leaves.append(leaf)

    grow(space, ())
    if not leaves:
        raise ValueError(f"an observation of {space} has no numbers to learn from")
    return leaves


def raw_space(space: Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of the array that holds one observation."""
    leaves = leaves_of(space)
    if is_structured(space):
        return (leaves[-1].start + leaves[-1].size,), np.dtype(np.float32)
    return leaves[0].shape or (1,), np.dtype(space.dtype)


def bounded_by_design(space: Space[Any]) -> bool:
    """Return whether observations have a known, small scale: images, choices, and numbers between -1 and 1."""
    numbers = [leaf.space for leaf in leaves_of(space) if isinstance(leaf.space, Box) and len(leaf.shape) < 3]
    floats = [box for box in numbers if np.issubdtype(box.dtype, np.floating)]
    return all((np.abs(box.low) <= 1).all() and (np.abs(box.high) <= 1).all() for box in floats)


def write_raw(space: Space[Any], observations: Any, out: NDArray[Any]) -> None:
    """Copy batched observations of Gymnasium's vector environments into `out` (rows, *raw shape)."""
    structured = is_structured(space)
    for leaf in leaves_of(space):
        values = _at(observations, leaf)
        if values.shape != (len(out), *leaf.shape):
            wanted = (len(out), *leaf.shape)
            raise ValueError(f"{_called(leaf)} must have the shape {wanted}, got {values.shape}")
        into = out[:, leaf.start : leaf.start + leaf.size] if structured else out
        into[...] = values.reshape(into.shape)


def batch_size(space: Space[Any], observation: Any) -> int | None:
    """Return the number of observations, None for a single one without a batch dimension.

    Raise for misfits, by name.
    """
    found: tuple[Leaf, int | None] | None = None
    for leaf in leaves_of(space):
        values = _at(observation, leaf)
        if leaf.shape not in (values.shape, values.shape[1:]):
            raise ValueError(
                f"{_called(leaf)} has the shape {leaf.shape}, or {_batched(leaf.shape)} for several; got {values.shape}"
            )
        if not np.can_cast(values.dtype, np.dtype(leaf.space.dtype), "same_kind"):
            raise ValueError(f"{_called(leaf)} is {np.dtype(leaf.space.dtype)}, got {values.dtype}")
        count = None if values.shape == leaf.shape else len(values)
        if found is not None and found[1] != count:
            raise ValueError(
                f"{_called(found[0])} has {_rows(found[1])}, {_called(leaf)} {_rows(count)}: all parts need the same"
            )
        found = found or (leaf, count)
    return None if found is None else found[1]


def _leaf(space: Space[Any], path: tuple[Any, ...], start: int) -> Leaf:
    name = "/".join(map(str, path))
    where = f" (part {name!r})" if path else ""
    if not isinstance(space, (Box, Discrete, MultiDiscrete, MultiBinary)):
        raise ValueError(
            f"no network reads observations of {space}{where}: use Box, Discrete, MultiDiscrete or MultiBinary, or Dict"
            " and Tuple of them"
        )
    shape = tuple(space.shape or ())
    size = prod(shape)
    if size == 0:
        raise ValueError(f"an observation of {space}{where} has no numbers to learn from")
    return Leaf(name, path, space, shape, start, size)


def _at(observation: Any, leaf: Leaf) -> NDArray[Any]:
    value = observation
    for depth, key in enumerate(leaf.path):
        inside = isinstance(value, Mapping) and key in value
        inside |= isinstance(value, (tuple, list)) and isinstance(key, int) and key < len(value)
        if not inside:
            within = f"observation {'/'.join(map(str, leaf.path[:depth]))!r}" if depth else "an observation"
            raise ValueError(f"{within} must have a part {key!r}, got {_spell(value)}")
        value = value[key]
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{_called(leaf)} is no array: {error}") from error


def _called(leaf: Leaf) -> str:
    return f"observation {leaf.name!r}" if leaf.path else "an observation"


def _batched(shape: tuple[int, ...]) -> str:
    return f"({', '.join(['rows', *map(str, shape)])}{'' if shape else ','})"


def _rows(count: int | None) -> str:
    return "a single row" if count is None else f"{count} rows"


def _spell(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(repr, value)) or 'nothing'}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (tuple, list)) else "")
