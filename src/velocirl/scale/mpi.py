"""MPI ranks through mpi4py."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from velocirl.scale.launching import LaunchError
from velocirl.scale.watching import Channel, News

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Defaults for Open MPI: no complaints without InfiniBand, and other processes may compute while a rank waits.
SETTINGS = {"opal_common_ucx_verbose": "-1", "mpi_yield_when_idle": "1"}
PAUSE = 0.005  # seconds


def world() -> Intracomm:
    """Return the communicator of all ranks of this job; without mpirun, one rank."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(f"OMPI_MCA_{name}", value)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py without MPI
        raise ValueError(f'MPI needs mpi4py and an MPI library: pip install "velocirl[mpi]" ({error})') from error
    return MPI.COMM_WORLD


class MPIRanks:
    """MPI ranks; see `ranks.Ranks`."""

    def __init__(self) -> None:
        self._comm = world()
        self.rank, self.size = self._comm.rank, self._comm.size
        from mpi4py import MPI

        self._in_place: Any = MPI.IN_PLACE

    def sum(self, array: NDArray[Any]) -> None:
        """Run one Allreduce."""
        self._comm.Allreduce(self._in_place, array)

    def broadcast(self, data: bytes | None) -> bytes:
        """Broadcast the length, then the data."""
        length = np.array([0 if data is None else len(data)], np.int64)
        self._comm.Bcast(length)
        given = np.empty(int(length[0]), np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()
        self._comm.Bcast(given)
        return given.tobytes()

    def gather(self, data: bytes) -> list[bytes]:
        """Gather the lengths, then the data."""
        lengths = np.zeros(self.size, np.int64)
        self._comm.Gather(np.array([len(data)], np.int64), lengths)
        ends = np.cumsum(lengths)
        given = np.empty(int(ends[-1]), np.uint8)
        places = lengths.tolist(), (ends - lengths).tolist()
        self._comm.Gatherv(np.frombuffer(data, np.uint8), [given, places] if self.rank == 0 else None)
        if self.rank:
            return []
        return [given[end - length : end].tobytes() for end, length in zip(ends, lengths, strict=True)]

    def assemble(self, seconds: float) -> None:
        """Wait in a nonblocking barrier, testing it from time to time."""
        request, until = self._comm.Ibarrier(), time.monotonic() + seconds
        while not request.Test():
            if time.monotonic() > until:
                raise LaunchError(
                    f"rank {self.rank} of {self.size} has waited {seconds:.0f} s for the others: all ranks have to"
                    " train the same agent, in the same order"
                )
            time.sleep(PAUSE)

    def open_channel(self) -> Channel | None:
        """Open a channel with its own communicator; None if MPI does not allow calls from several threads."""
        from mpi4py import MPI

        return MPIChannel(self._comm.Dup()) if MPI.Query_thread() == MPI.THREAD_MULTIPLE else None

    def abort(self, code: int) -> None:
        """End all ranks."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(code)


class MPIChannel:
    """Nonblocking MPI messages; see `watching.Channel`."""

    def __init__(self, comm: Intracomm) -> None:
        self._comm = comm
        self._peers = range(1, comm.size) if comm.rank == 0 else (0,)
        self._sent: dict[int, Any] = {}  # last request to each rank, and the rows it sends

    def exchange(self, rows: NDArray[np.float64]) -> News:
        """Send to ranks that have received the last message. Returns all messages received."""
        heard = []
        for peer in self._peers:
            before = self._sent.get(peer)
            if before is None or before[0].Test():
                self._sent[peer] = self._comm.Isend(rows, peer), rows
            while self._comm.Iprobe(peer):
                told = np.empty((self._comm.size if peer == 0 else 1, rows.shape[1]))
                self._comm.Recv(told, peer)
                heard.append((peer, told))
        return heard
