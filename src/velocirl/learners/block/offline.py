"""Learning from recorded data on CPU threads: updates alone, as many as an iteration has."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from velocirl.buffers.records import transition_type
from velocirl.buffers.replay import FILLED, TOTAL, ReplayBuffer
from velocirl.engine.compiler.counters import Meter, clear, read
from velocirl.learners.block.memory import BlockMemory
from velocirl.learners.counting.phases import LEARNING, UPDATE_COUNTS, add, add_parts
from velocirl.learners.learner import Report
from velocirl.learners.pace import Pace
from velocirl.learners.sharing import even_shares, sharing_of_data
from velocirl.learners.task import Task


class BlockOffline(BlockMemory):
    """Learns from data that never changes; everything is done when `iterate` returns.

    Of several processes, each has a part of the data.
    """

    def __init__(self, task: Task) -> None:
        assert task.recorded is not None  # noqa: S101 - of an algorithm that learns from data
        kind = transition_type(task.encoding.inputs, task.action, task.stored)
        reducer = task.reducer
        first, stop = even_shares(len(task.recorded), reducer.size)[reducer.rank]
        buffer = ReplayBuffer(stop - first, kind, task.seeds.learner)
        task.recorded.write(buffer.rows, first)
        buffer.counts[[FILLED, TOTAL]] = buffer.capacity
        super().__init__(task, buffer, sharing_of_data(task.config.effective_batch_size, reducer.size))
        self._meter = Meter(self.phases, "update", self._count)
        self.take()

    def iterate(self, schedule: Pace, steps: int) -> Report:
        """So many updates as the schedule has rounds, after which the run has made `steps`."""
        begun, before = perf_counter(), int(self._updates[0])
        self.update(schedule, schedule.rounds, steps)
        seconds = perf_counter() - begun
        self.program.counters[0][LEARNING] += int(seconds * 1e9)
        self._meter.add(seconds)
        self.check(steps)
        updates = int(self._updates[0])
        return Report(
            steps=steps,
            learning_rate=schedule.learning_rate,
            means=self.program.means(),
            gradient_norm=self.networks.mean_norm(),
            minibatches=updates - before,
            optimiser_steps=updates,
            explained_variance=float("nan"),
            returns=[],
            lengths=[],
        )

    def drain(self) -> None:
        """Nothing is ever under way."""
        self._meter.fold()

    def state(self) -> dict[str, NDArray[Any]]:
        """The networks and optimisers, and every random stream; the data is none of it."""
        own = {name: array.copy() for name, array in self.arrays().items()}
        return {**own, "memory.rng": self.buffer.rng.copy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self.load_arrays(self.arrays(), state)
        self.buffer.rng[:] = state["memory.rng"]
        self.take()

    def _count(self, seconds: float) -> None:
        """Add what was counted to the phases."""
        parts = read([self.program.counters[0]], UPDATE_COUNTS, LEARNING)
        clear(self.program.counters)
        add(self.phases, "update", seconds)
        add_parts(self.phases, "update", seconds, parts)
