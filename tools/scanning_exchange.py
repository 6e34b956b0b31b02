"""How ranks exchanged tables before rows were marked: what `tools/mpi_scaling.py --exchange` is measured beside.

Every row is compared with a copy of the whole table, all ranks get the changes of all, and each goes through them three
times.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from velocirl.tabular.tables.changes import change_type
from velocirl.tabular.tables.value_table import ValueTable


class ScanningReplica:
    """A dense table with one set of values, and how it was when all replicas were last alike."""

    def __init__(self, table: ValueTable) -> None:
        self.rows, self.base = table.arrays.rows, table.arrays.rows.copy()
        self._changes = np.zeros(4096, change_type(table))
        self._gathered = self._changes[:0]

    def exchange(self, comm: Any) -> None:
        """Find what moved, tell all ranks, and merge what moved on all."""
        changes = self._find()
        counts = np.array(comm.allgather(len(changes)))
        if len(self._gathered) < counts.sum():
            self._gathered = np.zeros(int(1.25 * counts.sum()), changes.dtype)
        gathered, size = self._gathered[: counts.sum()], changes.dtype.itemsize
        starts = np.cumsum(counts) - counts
        places = (counts * size).tolist(), (starts * size).tolist()
        comm.Allgatherv(changes.view(np.uint8), [gathered.view(np.uint8), places])
        merge(self.rows, self.base, gathered)

    def _find(self) -> Any:
        place = count = 0
        while True:
            place, count = collect(self.rows, self.base, self._changes, place, count)
            if place == len(self.rows):
                return self._changes[:count]
            self._changes = np.concatenate([self._changes, np.zeros_like(self._changes)])


@numba.njit(error_model="numpy")
def collect(rows, base, changes, place, count):
    """Changes from a row on, until there is no more room."""
    actions = len(rows[0].visits)
    while place < len(rows) and count + actions <= len(changes):
        row, before = rows[place], base[place]
        differs = np.int32(0)
        for a in range(actions):
            differs |= row.visits[a]
        if differs != 0:
            differs = np.int32(0)
            for a in range(actions):
                differs |= np.int32(row.visits[a] ^ before.visits[a])
                differs |= np.int32(row.values[a] != before.values[a])
        if differs != 0:
            for a in range(actions):
                visits = np.int32(row.visits[a] - before.visits[a])
                change = changes[count]
                change.state = place
                change.action = a
                change.visits = visits
                change.moved[0] = (row.values[a] - before.values[a]) * np.float32(visits)
                count += 1 if visits != 0 else 0
        place += 1
    return place, count


@numba.njit(error_model="numpy")
def merge(rows, base, changes):
    """Sum the changes up in the rows, then divide by their visits."""
    for i in range(len(changes)):
        place, a = np.uint64(changes[i].state), changes[i].action
        rows[place].visits[a] = base[place].visits[a]
        rows[place].values[a] = 0
    for i in range(len(changes)):
        place, a = np.uint64(changes[i].state), changes[i].action
        rows[place].visits[a] += changes[i].visits
        rows[place].values[a] += changes[i].moved[0]
    for i in range(len(changes)):
        place, a = np.uint64(changes[i].state), changes[i].action
        visits = np.int32(rows[place].visits[a] - base[place].visits[a])
        if visits != 0:
            rows[place].values[a] = base[place].values[a] + rows[place].values[a] / np.float32(visits)
            base[place].values[a] = rows[place].values[a]
            base[place].visits[a] = rows[place].visits[a]
