"""Copies of large arrays in reused memory.

The system clears fresh memory page by page, which takes several times as long as a copy into existing memory.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 2**16  # bytes; the allocator keeps the memory of smaller ones anyway
WIDE = 256  # bytes of a row; copying all narrower rows is faster than selecting some
MOST = 4  # arrays kept per shape: a caller holds one or two of them


def _references(kept: list[NDArray[Any]], place: int) -> int:
    return sys.getrefcount(kept[place])


UNUSED = _references([np.zeros(1)], 0)  # of an array that only the list refers to; depends on the Python version


def has_wide_rows(array: NDArray[Any]) -> bool:
    """Return whether handling rows one by one pays off."""
    return array.nbytes >= WIDE * len(array)


class Recycler:
    """Pool of array copies; each belongs to the caller while anything refers to it: a name, a view, a tensor."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], list[NDArray[Any]]] = {}

    def __reduce__(self) -> Any:
        return Recycler, ()  # a copy, or the object in another process, begins empty

    def copy(self, array: NDArray[Any], rows: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """Return a copy of an array; `rows` selects the rows that matter."""
        if array.nbytes < LARGE:
            return array.copy()
        twin, fresh = self._twin(array)
        if fresh or rows is None or not has_wide_rows(array):
            np.copyto(twin, array)
        else:
            twin[rows] = array[rows]
        return twin

    def like(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an uninitialized array of the same shape and type."""
        return self._twin(array)[0]

    def _twin(self, array: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        """Return an unreferenced array like this one, and whether it is new."""
        kept = self._kept.setdefault((array.shape, array.dtype), [])
        for place in range(len(kept)):
            if _references(kept, place) == UNUSED:
                return kept[place], False
        made = np.empty_like(array)
        if len(kept) < MOST:
            kept.append(made)
        return made, True
