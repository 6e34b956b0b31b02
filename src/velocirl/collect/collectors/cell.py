"""Seqlock: a record with one writer, which others read whole and without a lock."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.vector.host.copies import Carver


class Cell:
    """Seqlock record in shared memory; its write counter is odd during a write."""

    def __init__(self, carve: Carver, kind: Any) -> None:
        self._writes: NDArray[np.int64] = carve((1,), np.int64)
        self._record: NDArray[Any] = carve((1,), kind)

    def write(self, record: Any) -> None:
        """Write the record; only one process may."""
        self._writes[0] += 1
        self._record[0] = record
        self._writes[0] += 1

    def read(self) -> Any:
        """Return a copy of the newest complete record."""
        while True:
            before = int(self._writes[0])
            if before % 2 == 0:
                found = self._record.copy()
                if self._writes[0] == before:
                    return found[0]
            os.sched_yield()

    @property
    def writes(self) -> int:
        """Number of writes, including one in progress."""
        return (int(self._writes[0]) + 1) // 2
