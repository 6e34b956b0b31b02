"""Asynchronous MPI runtime: each rank learns into its own table and exchanges with a common one when it is ready.

No rank waits for another. The rows of the common table lie in blocks, one on each rank. Every `steps_per_sync` steps a
rank visits the owners, its own block first. It locks the block, gets the values, accumulates its own contribution, and
continues from the sum.

The contribution is what the rank's updates would have added after those of the others. Let k = 1 - (1 - learning
rate)^n: the fraction by which n updates move a value W0 toward their target T. This rank has moved it by k (T - W0) =
delta. Other ranks have meanwhile moved it to W, where the same updates would have made W + k (T - W). So the rank adds

    delta - k (W - W0)

Ranks that move a value to the same target end there, never beyond, however many they are.

Steps are counted in memory that all ranks can access, and a rank claims the next ones as soon as it is done: a faster
rank takes more. Episodes in the metrics are those of rank 0.
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

SMALLEST = 8  # toward the end ranks take less at a time, to end together, but at least this part


def conduct(agent: TabularAgent, total_steps: int | None) -> AbstractContextManager[bool]:
    """Return the context of training, entered by all ranks at once."""
    if agent.table.sparse:
        raise ValueError(
            'runtime="mpi-async" shares a dense table, and this one is sparse: use runtime="mpi", or storage="dense"'
        )
    return together(agent, total_steps)


def make_learner(agent: TabularAgent) -> TableLearner:
    """Create the learner of this rank."""
    return AsynchronousLearner(agent, world())


class AsynchronousLearner(RankLearner):
    """Rank that also owns a block of the common table."""

    common: CommonTable
    counters: Counters
    error = 0.0  # mean absolute TD error of the last rounds

    def meet(self) -> None:
        """Begin on all ranks, with the table of rank 0 as the common one."""
        super().meet()
        self.common = CommonTable(self.comm, self.replica)
        self.counters = Counters(self.comm, self.agent.steps)
        self.comm.Barrier()  # no rank may add to a block before it is initialized

    def part(self) -> None:
        """Wait until all ranks have ended, then free the common table."""
        self.common.free()
        self.counters.free()

    def run(self, pace: Pace, first: int) -> Outcome:  # noqa: ARG002 - a rank has a pace of its own
        """Take some of the remaining steps, and exchange the updates."""
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
        """Inform the others if only this rank is about to stop; then collect what all ranks have done."""
        agent = self.agent
        if not self.agreed and not agent.finished:
            self.counters.stop(self.reason_to_stop)
            self.agreed = True
        self.comm.Barrier()
        if self.comm.size > 1:
            self.common.exchange(agent.config.learning_rate)  # nothing is left to add
        taken, _ = self.counters.read()
        return Outcome(taken - agent.steps, self.error, [], []) if taken > agent.steps else None
