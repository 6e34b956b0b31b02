"""Structured Gymnasium values as contiguous rows: one array stores them and restores them exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

__all__ = ["Leaf", "RowLayout"]

# NumPy copies a (num_rows, 3) leaf into wider rows at 8 ns a row, but at 3 ns when the 3 numbers are viewed as one
# opaque element. The view costs 1 µs per leaf, hence only from this many rows on. Compiled loops, measured at 1, 64 and
# 4,096 rows, were not kept. numba over a tuple of byte views takes 1.3 to 9 times as long and compiles again for each
# number of leaves. Over raw addresses it takes 1.1 to 6 times as long up to 64 rows and 0.7 to 1.3 times at 4,096.
OPAQUE_FROM_ROWS = 256


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array in a structured space and its slot in the row: `row[offset : offset + size]`, in row elements."""

    path: tuple[Any, ...]  # keys and indices from the root: ("camera", 0)
    space: Space[Any]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Branch:
    """Dict or Tuple of the space; its children, by key or index, are leaf numbers or branches."""

    path: tuple[Any, ...]
    is_dict: bool
    children: dict[Any, _Branch | int]


class RowLayout:
    """Layout with one contiguous row per value of a space; each leaf has a fixed, aligned slot.

    The row's dtype is the leaves' common dtype, or uint8 if they differ. Leaves are sorted by decreasing alignment
    (otherwise in the space's order). Only the end of a row is therefore padding, always written as zero.
    """

    def __init__(self, space: Space[Any]) -> None:
        """Lay out `space`; raises TypeError if a part of it (Text, Graph, Sequence, OneOf) has no fixed size."""
        self.space = space
        found: list[tuple[tuple[Any, ...], Space[Any]]] = []
        self._root = _grow(space, (), found)
        dtypes = [np.dtype(leaf_space.dtype) for _, leaf_space in found]
        shapes = [tuple(leaf_space.shape or ()) for _, leaf_space in found]
        sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in zip(dtypes, shapes, strict=True)]

        numbers = range(len(found))
        offsets = [0] * len(found)  # in bytes, as sizes
        used = 0
        for number in sorted(numbers, key=lambda number: -dtypes[number].alignment):
            offsets[number] = used
            used += sizes[number]
        # Whole multiples of the widest alignment keep every row aligned; torch.from_numpy refuses other strides.
        alignment = max((dtype.alignment for dtype in dtypes), default=1)
        row_bytes = -(-used // alignment) * alignment

        self.dtype: np.dtype[Any] = dtypes[0] if len(set(dtypes)) == 1 else np.dtype(np.uint8)
        unit = self.dtype.itemsize
        self.width: int = row_bytes // unit
        self.leaves: tuple[Leaf, ...] = tuple(
            Leaf(*found[number], dtypes[number], shapes[number], offsets[number] // unit, sizes[number] // unit)
            for number in numbers
        )
        self._scalars: tuple[int, ...] = tuple(i for i, (_, leaf) in enumerate(found) if isinstance(leaf, Discrete))
        # Viewed through a record type a row needs no arithmetic: a name finds a leaf, as its array or as opaque bytes.
        self._array_names: tuple[str, ...] = tuple(f"array {number}" for number in numbers)
        self._opaque_names: tuple[str, ...] = tuple(f"opaque {number}" for number in numbers)
        self._record: np.dtype[Any] = np.dtype(
            {
                "names": [*self._array_names, *self._opaque_names, "padding"],
                "formats": [*zip(dtypes, shapes, strict=True), *(f"V{size}" for size in sizes), f"V{row_bytes - used}"],
                "offsets": [*offsets, *offsets, used],
                "itemsize": row_bytes,
            }
        )
        self._zero: np.ndarray = np.zeros((), self._record["padding"])

    def empty(self, num_rows: int) -> np.ndarray:
        """Return uninitialized rows (num_rows, width)."""
        return np.empty((num_rows, self.width), self.dtype)

    def flatten(self, value: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Return the row (width,) of one value, written into `out` if given.

        Without `out`, the row of a space with a single leaf is that leaf's own memory, not a copy.
        """
        if out is not None:
            self._check_rows(out, (self.width,), "out")
        arrays = self._check(_collect(self._root, value, []), ())
        if out is None:
            if len(arrays) == 1:
                return arrays[0].reshape(self.width)
            out = np.empty(self.width, self.dtype)
        self._write(arrays, out[np.newaxis])
        return out

    def flatten_batch(self, value: Any, out: np.ndarray | None = None) -> np.ndarray:
        """Return the rows (num_rows, width) of values batched as by `gymnasium.vector.utils.batch_space`.

        They are written into `out` if given; without it, the rows of a single contiguous leaf are its own memory, not a
        copy.
        """
        if out is not None:
            self._check_rows(out, (*out.shape[:1], self.width), "out")
        parts = _collect(self._root, value, [])
        if out is None and not parts:
            raise ValueError(f"{self.space} has no leaves, so its values do not tell the number of rows: give out")
        try:
            num_rows = len(parts[0] if out is None else out)
        except TypeError as error:  # a scalar
            raise ValueError(f"{_spell(self.leaves[0].path)}: expected a batch of rows, got {parts[0]!r}") from error
        arrays = self._check(parts, (num_rows,))
        if out is None:
            if len(arrays) == 1:
                return arrays[0].reshape(num_rows, self.width)
            out = self.empty(num_rows)
        self._write(arrays, out)
        return out

    def unflatten(self, row: np.ndarray) -> Any:
        """Return the value of one row (width,). Arrays are views into the row; Discrete values are NumPy scalars."""
        self._check_rows(row, (self.width,), "row")
        arrays: list[Any] = self._views(row)
        for number in self._scalars:
            arrays[number] = arrays[number][()]
        return _nest(self._root, arrays)

    def unflatten_batch(self, rows: np.ndarray) -> Any:
        """Return the batched value of rows (..., width): each leaf is a view (..., *shape), for any leading axes."""
        self._check_rows(rows, (*rows.shape[:-1], self.width), "rows")
        return _nest(self._root, self._views(rows))

    def _views(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return each leaf's part of rows (..., width) as (..., *shape)."""
        records = self._records(rows)
        return [records[name] for name in self._array_names]

    def _records(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (..., width) viewed as records (...); rows of zero width have no bytes to view."""
        return rows.view(self._record)[..., 0] if self.width else np.empty(rows.shape[:-1], self._record)

    def _write(self, arrays: list[np.ndarray], rows: np.ndarray) -> None:
        """Copy the leaves, (num_rows, *shape) or for one row (*shape), into rows (num_rows, width)."""
        records = self._records(rows)
        if self._zero.nbytes:
            records["padding"] = self._zero
        many = len(rows) >= OPAQUE_FROM_ROWS
        for number, array in enumerate(arrays):
            if many and array.size > len(rows):
                name = self._opaque_names[number]
                elements = np.ascontiguousarray(array).reshape(len(rows), -1).view(self._record[name])
                records[name] = elements[:, 0]
            else:
                records[self._array_names[number]] = array

    def _check(self, parts: list[Any], batch: tuple[int, ...]) -> list[np.ndarray]:
        """Return leaves as arrays (*batch, *shape) of their dtypes; raises ValueError if one does not fit exactly."""
        arrays: list[np.ndarray] = []
        for leaf, part in zip(self.leaves, parts, strict=True):
            expected = batch + leaf.shape
            try:
                array = np.asarray(part)
            except ValueError as error:  # lists of different lengths
                raise ValueError(f"{_spell(leaf.path)}: expected {leaf.dtype} {expected}, got {error}") from error
            if array.dtype != leaf.dtype or array.shape != expected:
                if array.shape != expected or not _fits(array, leaf.dtype):
                    loss = ", whose values it cannot hold exactly" if array.shape == expected else ""
                    got = f"{array.dtype} {array.shape}{loss}"
                    raise ValueError(f"{_spell(leaf.path)}: expected {leaf.dtype} {expected}, got {got}")
                array = array.astype(leaf.dtype)
            arrays.append(array)
        return arrays

    def _check_rows(self, rows: np.ndarray, shape: tuple[int, ...], name: str) -> None:
        if rows.shape != shape or rows.dtype != self.dtype:
            raise ValueError(f"{name}: expected {self.dtype} {shape}, got {rows.dtype} {rows.shape}")


def _grow(space: Space[Any], path: tuple[Any, ...], found: list[tuple[tuple[Any, ...], Space[Any]]]) -> _Branch | int:
    """Build the tree of branches and leaf numbers under `space`; appends its leaves to `found` in the space's order."""
    if isinstance(space, (Dict, Tuple)):
        items = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        children = {key: _grow(child, (*path, key), found) for key, child in items}
        return _Branch(path, isinstance(space, Dict), children)
    if isinstance(space, (Box, Discrete, MultiDiscrete, MultiBinary)):
        found.append((path, space))
        return len(found) - 1
    raise TypeError(
        f"{_spell(path)} is {space}, which has no fixed size and so no place in a row; "
        "a row holds Box, Discrete, MultiDiscrete and MultiBinary, and Dict and Tuple of them"
    )


def _collect(node: _Branch | int, value: Any, parts: list[Any]) -> list[Any]:
    """Append the leaves of a value to `parts`, in the order of their numbers."""
    if isinstance(node, int):
        parts.append(value)
        return parts
    if node.is_dict:
        if not isinstance(value, dict) or value.keys() != node.children.keys():
            got = f"keys {list(value)}" if isinstance(value, dict) else type(value).__name__
            raise ValueError(f"{_spell(node.path)}: expected a dict with keys {list(node.children)}, got {got}")
    elif not isinstance(value, (tuple, list)) or len(value) != len(node.children):
        got = f"{type(value).__name__} of {len(value)}" if isinstance(value, (tuple, list)) else type(value).__name__
        raise ValueError(f"{_spell(node.path)}: expected a tuple of {len(node.children)}, got {got}")
    for key, child in node.children.items():
        _collect(child, value[key], parts)
    return parts


def _nest(node: _Branch | int, arrays: list[Any]) -> Any:
    """Invert `_collect`: nest the arrays, given in the order of the leaves, as in the space."""
    if isinstance(node, int):
        return arrays[node]
    if node.is_dict:
        return {key: _nest(child, arrays) for key, child in node.children.items()}
    return tuple([_nest(child, arrays) for child in node.children.values()])


def _fits(array: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` holds the array exactly: integers by value (Python's have no dtype), floats by dtype."""
    if dtype.kind == "f":  # NumPy calls int64 to float64 safe, though 2**53 + 1 is lost; a wider float loses nothing
        return np.can_cast(array.dtype, dtype) and (array.dtype.kind in "bf" or array.itemsize < dtype.itemsize)
    return array.dtype.kind in "biu" and bool((array.astype(dtype) == array).all())


def _spell(path: tuple[Any, ...]) -> str:
    """Format a path as in Python: value['camera'][0]."""
    return "value" + "".join(f"[{key!r}]" for key in path)
