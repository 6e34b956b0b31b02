"""Base class of the learners of MPI ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.runtimes import serial
from velocirl.tabular.runtimes.mpi_exchange import share_table
from velocirl.tabular.runtimes.mpi_rounds import seeds_of_rank
from velocirl.tabular.tables.merging import Replica

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Stop codes of a rank; of several ranks, the highest counts.
GOING_ON, STOPPED, SIGNALLED = range(3)
REASONS = {STOPPED: "a callback stopped it", SIGNALLED: "SIGTERM"}


class RankLearner:
    """One of many ranks, with environments, streams and a table of its own. The constructor does not communicate."""

    grain = 0  # a call may be short: no minimum of steps

    def __init__(self, agent: TabularAgent, comm: Intracomm) -> None:
        agent.seeds = seeds_of_rank(agent.seed, comm.rank, agent.steps)
        self.agent, self.comm = agent, comm
        self.learner = serial.make_learner(agent)
        self.replica = Replica(agent.table)
        self.num_envs = agent.num_envs
        self.agreed = False  # to stop before the goal

    def meet(self) -> None:
        """Begin on all ranks, with the table of rank 0."""
        self.agreed = False
        share_table(self.comm, self.replica)

    def part(self) -> None:
        """Wait until all ranks have ended."""
        self.comm.Barrier()

    def agree(self, stop: int) -> None:
        """Stop together with all ranks, for this reason unless this rank has its own."""
        self.agreed = True
        self.agent.stopping = self.agent.stopping or REASONS[stop]

    @property
    def reason_to_stop(self) -> int:
        """Why this rank has left training before the goal: a callback, or else a signal."""
        return STOPPED if self.agent.stopping is not None else SIGNALLED

    def settle(self) -> None:
        """Bring the table up to date, by the rank's own learner."""
        self.learner.settle()

    def take(self) -> None:
        """Continue from the agent's table; other ranks receive it when training begins again."""
        self.learner.take()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return nothing: a resumed run begins new episodes, on any number of ranks."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: no state is needed."""

    def close(self) -> None:
        """Release the resources of the rank's own learner."""
        self.learner.close()
