"""Copies of large arrays in memory that is used again.

The system clears fresh memory page by page, which takes several times as long as a copy into memory that is there.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 2**16  # bytes; smaller ones come from memory that the allocator keeps anyway
WIDE = 256  # bytes of a row; all narrower ones are copied sooner than some are chosen
MOST = 4  # arrays of a shape that are kept: a caller has one or two of them in hand


def _references(kept: list[NDArray[Any]], place: int) -> int:
    return sys.getrefcount(kept[place])


UNUSED = _references([np.zeros(1)], 0)  # of an array that only the list refers to; Python's versions count differently


def has_wide_rows(array: NDArray[Any]) -> bool:
    """Whether it pays to treat rows of an array one by one."""
    return array.nbytes >= WIDE * len(array)


class Recycler:
    """Gives copies, each the caller's own for as long as anything refers to it: a name, a view, a tensor."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], list[NDArray[Any]]] = {}

    def __reduce__(self) -> Any:
        return Recycler, ()  # a copy of it, or one in another process, begins with nothing

    def copy(self, array: NDArray[Any], rows: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """A copy of an array; where only some rows mean something, of those."""
        if array.nbytes < LARGE:
            return array.copy()
        twin, fresh = self._twin(array)
        if fresh or rows is None or not has_wide_rows(array):
            np.copyto(twin, array)
        else:
            twin[rows] = array[rows]
        return twin

    def like(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of the same shape and type, in which everything is still to be written."""
        return self._twin(array)[0]

    def _twin(self, array: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        """An array like this that nobody refers to, and whether it is a new one."""
        kept = self._kept.setdefault((array.shape, array.dtype), [])
        for place in range(len(kept)):
            if _references(kept, place) == UNUSED:
                return kept[place], False
        made = np.empty_like(array)
        if len(kept) < MOST:
            kept.append(made)
        return made, True
