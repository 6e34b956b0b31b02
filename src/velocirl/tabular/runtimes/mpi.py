"""Synchronous MPI runtime: ranks learn into tables of their own and merge them every `steps_per_sync` steps.

All ranks synchronize, so that all tables are equal after every exchange. A run is repeatable: it depends only on the
seed and the number of ranks. `velocirl.tabular.tables.merging` describes the merge. All ranks take the same number of
steps. If some ranks are slower, `runtime="mpi-async"` avoids the waiting.
"""

from __future__ import annotations

from velocirl.scale.mpi import world
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.learner import Outcome, TableLearner
from velocirl.tabular.loop import Pace
from velocirl.tabular.runtimes.mpi_exchange import exchange, say
from velocirl.tabular.runtimes.mpi_learner import GOING_ON, RankLearner
from velocirl.tabular.runtimes.mpi_rounds import NOTHING, learn_rounds
from velocirl.tabular.runtimes.mpi_world import together

conduct = together


def make_learner(agent: TabularAgent) -> TableLearner:
    """Create the learner of this rank."""
    return SynchronousLearner(agent, world())


class SynchronousLearner(RankLearner):
    """Rank that synchronizes with all others after every period."""

    def run(self, pace: Pace, first: int) -> Outcome:  # noqa: ARG002 - a rank has a pace of its own
        """Take this rank's steps up to the next exchange, and exchange."""
        goal = self.agent.goal
        assert goal is not None  # noqa: S101 - learning
        ranks, copies = self.comm.size, self.num_envs
        rounds = min(-(-self.agent.config.steps_per_sync // copies), -(-(goal.stop - first) // (ranks * copies)))
        return self._exchange(learn_rounds(self.agent, self.learner, first, rounds, ranks), GOING_ON)

    def meet(self) -> None:
        """Synchronize all ranks at the start; mark rows of stored steps, which may still be learned from."""
        super().meet()
        self.agent.table.mark(self.learner.remembered())

    def drain(self) -> Outcome | None:
        """If only this rank is about to stop training, inform the others at their next exchange."""
        if self.agreed or self.agent.finished:
            return None
        outcome = self._exchange(NOTHING, self.reason_to_stop)
        return outcome if outcome.steps else None

    def _exchange(self, outcome: Outcome, stop: int) -> Outcome:
        if self.comm.size == 1:
            self.agreed = stop != GOING_ON
            return outcome
        changes = self.replica.changes(1 if self.agent.table.sparse else self.comm.size)
        said = say(self.comm, outcome, len(changes.list), stop, self.agent.report)
        exchange(self.comm, self.replica, changes, said.changes)
        self.agent.table.mark(self.learner.remembered())
        if said.stop != GOING_ON:
            self.agreed = True
            if said.stop != stop:
                self.agree(said.stop)
        return said.outcome
