"""Copies of large arrays in memory that is used again.

The system clears fresh memory page by page, which takes several times as long as a copy into memory that is there.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 2**16  # bytes; smaller ones come from memory that the allocator keeps anyway
MOST = 4  # arrays of a shape that are kept: a caller has one or two of them in hand


def _references(kept: list[NDArray[Any]], place: int) -> int:
    return sys.getrefcount(kept[place])


UNUSED = _references([np.zeros(1)], 0)  # of an array that only the list refers to; Python's versions count differently


class Recycler:
    """Gives copies, each the caller's own for as long as anything refers to it: a name, a view, a tensor."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], list[NDArray[Any]]] = {}

    def __reduce__(self) -> Any:
        return Recycler, ()  # a copy of it, or one in another process, begins with nothing

    def copy(self, array: NDArray[Any], chosen: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """A copy of an array. Where only chosen rows matter, the others of a large one hold whatever was there."""
        if array.nbytes < LARGE:
            return array.copy()
        kept = self._kept.setdefault((array.shape, array.dtype), [])
        for place in range(len(kept)):
            if _references(kept, place) == UNUSED:
                rows = slice(None) if chosen is None else chosen
                kept[place][rows] = array[rows]
                return kept[place]
        made = array.copy()
        if len(kept) < MOST:
            kept.append(made)
        return made
