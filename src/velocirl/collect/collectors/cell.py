"""A record that one process writes and others read, whole or not at all, without a lock (a seqlock)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.vector.host.copies import Carver


class Cell:
    """A record of shared memory; how often it was written is odd while it is being written."""

    def __init__(self, carve: Carver, kind: Any) -> None:
        self._writes: NDArray[np.int64] = carve((1,), np.int64)
        self._record: NDArray[Any] = carve((1,), kind)

    def write(self, record: Any) -> None:
        """Let all who read from now on find this; by one process only."""
        self._writes[0] += 1
        self._record[0] = record
        self._writes[0] += 1

    def read(self) -> Any:
        """The newest record that is whole, as a copy."""
        while True:
            before = int(self._writes[0])
            if before % 2 == 0:
                found = self._record.copy()
                if self._writes[0] == before:
                    return found[0]
            os.sched_yield()

    @property
    def writes(self) -> int:
        """How often it was written."""
        return (int(self._writes[0]) + 1) // 2
