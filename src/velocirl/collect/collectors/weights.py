"""Published weights of the acting network, in shared memory, under increasing numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.collect.collectors.cell import Cell
from velocirl.vector.host.copies import Carver


class Weights:
    """Newest publications in cyclic slots: each is read whole, and numbers never decrease."""

    def __init__(self, carve: Carver, size: int, slots: int) -> None:
        """Allocate publications of `size` bytes: `slots` readable ones and one about to be replaced."""
        kind = np.dtype([("number", np.int64), ("updates", np.int64), ("bytes", np.uint8, (size,))])
        self._newest: NDArray[np.int64] = carve((1,), np.int64)
        self._cells = [Cell(carve, kind) for _ in range(slots + 1)]
        self._given = np.zeros(1, kind)

    @property
    def newest(self) -> int:
        """The number of the newest publication; the first is 1."""
        return int(self._newest[0])

    def publish(self, content: NDArray[np.uint8], updates: int) -> int:
        """Publish the weights reached after `updates` updates. Returns their number."""
        number, given = self.newest + 1, self._given
        given["number"], given["updates"], given["bytes"][0] = number, updates, content
        self._cells[number % len(self._cells)].write(given[0])
        self._newest[0] = number
        return number

    def read(self, number: int | None = None) -> Any:
        """Return a publication, by its number or the newest: a record of number, updates and bytes."""
        while True:
            wanted = self.newest if number is None else number
            found = self._cells[wanted % len(self._cells)].read()
            if found["number"] == wanted:
                return found
            if number is not None:
                raise LookupError(f"publication {number} was replaced by {found['number']}")
