"""Learning on CPU threads from rollouts that collectors bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.counters import TIMED, WHOLE
from velocirl.learners.block.collector import BlockRecorded
from velocirl.learners.block.rollout import BlockRollout
from velocirl.learners.collectors.collected_rollouts import CollectedRollouts
from velocirl.learners.collectors.content import seeing, to_bytes
from velocirl.learners.counting.phases import ENVIRONMENT, ROUND
from velocirl.learners.learner import Report
from velocirl.learners.schedule import Schedule
from velocirl.learners.task import Task


class BlockCollected(BlockRecorded):
    """What collectors bring, in the place of a collector in this process."""

    envs = None  # collectors have them

    def __init__(self, task: Task, updates: Callable[[], int]) -> None:
        super().__init__(task, 1)
        parameters = task.parameters[task.acting]
        self.collected = CollectedRollouts(task, self.columns(), lambda: to_bytes(parameters, seeing(self)), updates)

    def begin(self) -> None:
        """Start the processes."""
        self.collected.start()

    def collect(self) -> None:
        """Take rollouts of all copies; the time that counts is that of waiting for them."""
        begun = now()
        self.collected.collect()
        self.counters[0, [ENVIRONMENT, WHOLE]] += now() - begun
        self.counters[0, [ROUND, ROUND + TIMED]] = 1

    def state(self) -> dict[str, NDArray[Any]]:
        """The policy's random streams and the discounted returns; rollouts that wait in rings are not saved."""
        self.collected.settle()
        rng, kept = self.collected.streams
        return {"policy.rng": rng, "policy.discounted": kept[:, 0]}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with new episodes, whose seeds come from the policy's streams."""
        self.collected.begin_anew(state["policy.rng"])


class CollectedRollout(BlockRollout):
    """Learns from what collectors bring, while they collect the next."""

    collector: BlockCollected

    def iterate(self, schedule: Schedule, steps: int) -> Report | None:
        """As without collectors; where that fails, they end."""
        try:
            return super().iterate(schedule, steps)
        except BaseException:
            self.close()
            raise

    def drain(self) -> Report | None:
        """Nothing is under way any more, and collectors rest."""
        self.collector.collected.pause()
        return super().drain()

    def gauges(self) -> dict[str, float]:
        """What is known of the collectors."""
        return {**super().gauges(), **self.collector.collected.gauges()}

    def close(self) -> None:
        """End the collectors."""
        self.collector.collected.close()

    def _make_collector(self) -> BlockCollected:
        return BlockCollected(self.task, lambda: int(self._minibatches[1]))
