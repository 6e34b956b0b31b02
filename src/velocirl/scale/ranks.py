"""The ranks of a job: what each can say to the others, whatever carries it."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

from numpy.typing import NDArray

from velocirl.scale.launching import Launch, LaunchError
from velocirl.scale.watching import Channel


class LostRankError(RuntimeError):
    """Another rank has ended before its time."""


class Ranks(Protocol):
    """All ranks of a job as one of them sees them; a `program.reducing.Reducer` with a few words more."""

    rank: int
    size: int

    def sum(self, array: NDArray[Any]) -> None:
        """Add up an array of floats over all ranks, in its place; all get the same bits."""
        ...

    def broadcast(self, data: bytes | None) -> bytes:
        """What the first rank says; the others give nothing."""
        ...

    def gather(self, data: bytes) -> list[bytes]:
        """What all ranks say, in their order, for the first one; the others hear nothing."""
        ...

    def assemble(self, seconds: float) -> None:
        """Wait until all ranks are here; a `LaunchError` where they are not after so many seconds."""
        ...

    def open_channel(self) -> Channel | None:
        """For news beside what is said here, from another thread; None where there can be none. All ranks do so."""
        ...

    def abort(self, code: int) -> None:
        """End all ranks, where that is for a rank to do; else the launcher does when this one has ended."""
        ...


@cache
def ranks_of(launch: Launch) -> Ranks:
    """The ranks of a job that has several; what they need is imported now."""
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
