"""What the learners of MPI ranks have in common."""

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

# What a rank says of stopping; of several, the highest counts.
GOING_ON, STOPPED, SIGNALLED = range(3)
REASONS = {STOPPED: "a callback stopped it", SIGNALLED: "SIGTERM"}


class RankLearner:
    """One rank of many: copies, streams and a table of its own. To make it, nothing is exchanged."""

    grain = 0  # a call may be short

    def __init__(self, agent: TabularAgent, comm: Intracomm) -> None:
        agent.seeds = seeds_of_rank(agent.seed, comm.rank, agent.steps)
        self.agent, self.comm = agent, comm
        self.learner = serial.make_learner(agent)
        self.replica = Replica(agent.table)
        self.num_envs = agent.num_envs
        self.agreed = False  # to stop before the goal

    def meet(self) -> None:
        """All ranks begin, with the table of the first one."""
        self.agreed = False
        share_table(self.comm, self.replica)

    def part(self) -> None:
        """All ranks have ended; who comes first waits."""
        self.comm.Barrier()

    def agree(self, stop: int) -> None:
        """All ranks stop, for this reason unless a rank has its own."""
        self.agreed = True
        self.agent.stopping = self.agent.stopping or REASONS[stop]

    @property
    def reason_to_stop(self) -> int:
        """Why this rank has left training before the goal: a callback says so, else it was a signal."""
        return STOPPED if self.agent.stopping is not None else SIGNALLED

    def settle(self) -> None:
        """As the rank's own learner."""
        self.learner.settle()

    def take(self) -> None:
        """As the rank's own learner; the others get the table when training begins again."""
        self.learner.take()

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing: who goes on from the table begins new episodes, on as many ranks as there are then."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Nothing has to be known."""

    def close(self) -> None:
        """Give back what the rank's own learner holds."""
        self.learner.close()
