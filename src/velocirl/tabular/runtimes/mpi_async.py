"""MPI ranks that learn into tables of their own, and exchange with one that all own, each when it comes to it.

No rank waits for another. The rows of the common table lie in blocks, one on each rank. Every `steps_per_sync` steps a
rank goes round the owners, its own block first: it locks the block, gets what is there, accumulates what it has to add,
and goes on from the sum. What it adds is as if its own updates had been made after those of the others. With k = 1 -
(1 - learning rate)^n, the share by which n updates bring a value W0 to their target T, this rank has moved it by
k (T - W0) = delta; where others have meanwhile brought it to W, the same updates would have made W + k (T - W), so that

    delta - k (W - W0)

is added. Ranks that move a value to the same target end there, never beyond, however many they are.

Steps are counted where all ranks see it, and a rank takes the next ones as soon as it is done with the last: a faster
one takes more. Episodes in the metrics are those of the first rank.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from velocirl.scale.mpi import world
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.learner import Outcome, TableLearner
from velocirl.tabular.loop import Pace
from velocirl.tabular.runtimes.mpi_learner import GOING_ON, RankLearner
from velocirl.tabular.runtimes.mpi_rounds import learn_rounds
from velocirl.tabular.runtimes.mpi_windows import CommonTable, Counters
from velocirl.tabular.runtimes.mpi_world import together

SMALLEST = 8  # towards the end ranks take less at a time, so that they end together, but no less than this part


def conduct(agent: TabularAgent, total_steps: int | None) -> AbstractContextManager[bool]:
    """Train while this context lasts, all ranks at once."""
    if agent.table.sparse:
        raise ValueError(
            'runtime="mpi-async" shares a dense table, and this one is sparse: use runtime="mpi", or storage="dense"'
        )
    return together(agent, total_steps)


def make_learner(agent: TabularAgent) -> TableLearner:
    """The learner of this rank."""
    return AsynchronousLearner(agent, world())


class AsynchronousLearner(RankLearner):
    """A rank that has a part of the common table besides."""

    common: CommonTable
    counters: Counters
    error = 0.0  # of the last rounds

    def meet(self) -> None:
        """All ranks begin, with the table of the first one as the common one."""
        super().meet()
        self.common = CommonTable(self.comm, self.replica)
        self.counters = Counters(self.comm, self.agent.steps)
        self.comm.Barrier()  # nobody adds to what is not there yet

    def part(self) -> None:
        """All ranks have ended; who comes first waits."""
        self.common.free()
        self.counters.free()

    def run(self, pace: Pace, first: int) -> Outcome:  # noqa: ARG002 - a rank has a pace of its own
        """Take some of the steps that are left, and exchange what was learnt."""
        agent, ranks, goal, rounds = self.agent, self.comm.size, self.agent.goal, 0
        assert goal is not None  # noqa: S101 - learning

        def decide(taken: int, stop: int) -> int:
            nonlocal rounds
            left = goal.stop - taken
            if left > 0 and stop == GOING_ON:
                most = agent.config.steps_per_sync
                share = max(-(-left // ranks), -(-most // SMALLEST))
                rounds = -(-min(most, share, left) // self.num_envs)
            return rounds * self.num_envs

        taken, stop = self.counters.take(decide)
        if stop != GOING_ON:
            self.agree(stop)
        if rounds == 0:
            return Outcome(taken - first, self.error, [], [])
        outcome = learn_rounds(agent, self.learner, taken, rounds, ranks)
        if ranks > 1:
            middle = goal.progress(taken + rounds * self.num_envs * ranks // 2)
            self.common.exchange(agent.learning_rate_at(middle))
        self.error = outcome.error
        return Outcome(taken + outcome.steps - first, self.error, outcome.returns, outcome.lengths,
                       outcome.reported)  # fmt: skip

    def drain(self) -> Outcome | None:
        """Where only this rank knows that training is to stop, let the others know; then take what all have done."""
        agent = self.agent
        if not self.agreed and not agent.finished:
            self.counters.stop(self.reason_to_stop)
            self.agreed = True
        self.comm.Barrier()
        if self.comm.size > 1:
            self.common.exchange(agent.config.learning_rate)  # there is nothing left to add
        taken, _ = self.counters.read()
        return Outcome(taken - agent.steps, self.error, [], []) if taken > agent.steps else None
