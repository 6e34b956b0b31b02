"""One-sided MPI memory: all ranks can read and add to it without the owner taking part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.tabular.tables.merging import Replica

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

STEPS, STOP = range(2)  # offsets of the counters
OWNER = 0  # rank that holds the counters


class Counters:
    """Shared counters: the steps that ranks have claimed, and the stop code."""

    def __init__(self, comm: Intracomm, steps: int) -> None:
        from mpi4py import MPI

        size = 8 * 2 if comm.rank == OWNER else 0
        self._window = MPI.Win.Allocate(size, 8, comm=comm)
        self._mpi: Any = MPI
        if comm.rank == OWNER:
            self._window.Lock(OWNER)
            _array(self._window, np.int64)[:] = steps, 0
            self._window.Unlock(OWNER)

    def read(self) -> tuple[int, int]:
        """Return the steps claimed and the stop code."""
        return self.take(lambda steps, stop: 0)  # noqa: ARG005

    def take(self, decide: Callable[[int, int], int]) -> tuple[int, int]:
        """Claim as many steps as `decide(steps, stop)` returns. Returns the steps claimed before and the stop code."""
        self._window.Lock(OWNER)
        steps, stop = self._add(STEPS, 0), self._add(STOP, 0)
        more = decide(steps, stop)
        if more:
            self._add(STEPS, more)
        self._window.Unlock(OWNER)
        return steps, stop

    def stop(self, reason: int) -> None:
        """Set the stop code for all ranks."""
        self._window.Lock(OWNER)
        self._add(STOP, reason, self._mpi.MAX)
        self._window.Unlock(OWNER)

    def free(self) -> None:
        """Free the memory, on all ranks at once."""
        self._window.Free()

    def _add(self, place: int, more: int, operation: Any = None) -> int:
        before = np.zeros(1, np.int64)
        self._window.Fetch_and_op(np.array([more]), before, OWNER, place, operation or self._mpi.SUM)
        self._window.Flush(OWNER)
        return int(before[0])


class CommonTable:
    """Dense table whose rows lie in blocks, one on each rank: all values of a block, then all its visits."""

    def __init__(self, comm: Intracomm, replica: Replica) -> None:
        from mpi4py import MPI

        table = replica.table
        self._comm, self._replica = comm, replica
        self._bounds = [table.states * rank // comm.size for rank in range(comm.size + 1)]
        most = max(b - a for a, b in zip(self._bounds[:-1], self._bounds[1:], strict=True))
        self._values = np.empty((most, table.sets * table.actions), table.dtype)
        self._visits = np.empty((most, table.actions), np.int32)
        self._kinds = MPI.FLOAT if table.dtype == np.float32 else MPI.DOUBLE, MPI.INT32_T
        self._sum = MPI.SUM
        first, stop = self._bounds[comm.rank], self._bounds[comm.rank + 1]
        rows = table.arrays.rows[first:stop]
        own = rows["values"].tobytes() + rows["visits"].tobytes()
        self._window = MPI.Win.Allocate(len(own), 1, comm=comm)
        self._window.Lock(comm.rank)
        _array(self._window, np.uint8)[:] = np.frombuffer(own, np.uint8)
        self._window.Unlock(comm.rank)

    def exchange(self, rate: float) -> None:
        """Add this rank's updates, block by block, and continue from the sum of all ranks."""
        for k in range(self._comm.size):
            owner = (self._comm.rank + k) % self._comm.size
            first, stop = self._bounds[owner], self._bounds[owner + 1]
            if first == stop:
                continue
            parts = self._values[: stop - first], self._visits[: stop - first]
            self._window.Lock(owner)
            self._each(self._window.Get, owner, parts)
            self._window.Flush(owner)
            self._replica.catch_up(first, *parts, rate)
            self._each(self._window.Accumulate, owner, parts, self._sum)
            self._window.Unlock(owner)

    def free(self) -> None:
        """Free the memory, on all ranks at once."""
        self._window.Free()

    def _each(self, operation: Any, owner: int, parts: tuple[Any, Any], *more: Any) -> None:
        """Get or accumulate the values of a block, and its visits."""
        place = 0
        for part, kind in zip(parts, self._kinds, strict=True):
            operation([part, part.size, kind], owner, [place, part.size, kind], *more)
            place += part.nbytes


def _array(window: Any, dtype: Any) -> NDArray[Any]:
    """Return this rank's part of a window."""
    return np.frombuffer(window, dtype)
