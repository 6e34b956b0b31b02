"""Ranks of a job: their collective operations, independent of the backend."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

from numpy.typing import NDArray

from velocirl.scale.launching import Launch, LaunchError
from velocirl.scale.watching import Channel


class LostRankError(RuntimeError):
    """Another rank has ended too early."""


class Ranks(Protocol):
    """All ranks of a job, as seen by one of them; a `program.reducing.Reducer` with more operations."""

    rank: int
    size: int

    def sum(self, array: NDArray[Any]) -> None:
        """Add up an array of floats over all ranks, in place; all get the same bits."""
        ...

    def broadcast(self, data: bytes | None) -> bytes:
        """Return the data of rank 0; the other ranks pass None."""
        ...

    def gather(self, data: bytes) -> list[bytes]:
        """Return the data of all ranks in their order on rank 0, and an empty list on the others."""
        ...

    def assemble(self, seconds: float) -> None:
        """Wait until all ranks are here. Raises LaunchError if they are not after `seconds`."""
        ...

    def open_channel(self) -> Channel | None:
        """Open a channel for reports from another thread; None if impossible. All ranks call it."""
        ...

    def abort(self, code: int) -> None:
        """End all ranks, if a rank has to do that; otherwise the launcher does once this rank has ended."""
        ...


@cache
def ranks_of(launch: Launch) -> Ranks:
    """Return the ranks of a job with several processes; imports their backend now."""
    if launch.runtime == "mpi":
        if find_spec("mpi4py") is None:
            raise LaunchError(
                f"{launch.launcher} has started {launch.size} processes, which cannot train together without mpi4py:"
                ' pip install "velocirl[mpi]", or give runtime="local" to let each train by itself'
            )
        from velocirl.scale.mpi import MPIRanks

        ranks: Ranks = MPIRanks()
    else:
        if find_spec("torch") is None:
            raise LaunchError(
                f"{launch.launcher} has started {launch.size} processes, which cannot train together without torch:"
                ' pip install "velocirl[torch]", or give runtime="local" to let each train by itself'
            )
        from velocirl.scale.torch_ranks import TorchRanks

        ranks = TorchRanks(launch)
    if ranks.size != launch.size:
        raise LaunchError(
            f"{launch.launcher} has started {launch.size} processes, and MPI knows of {ranks.size}: mpi4py uses another"
            " MPI than that launcher; start them with the mpirun of the MPI that mpi4py was built for"
        )
    return ranks
