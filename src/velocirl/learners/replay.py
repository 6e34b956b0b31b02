"""Off-policy learning on any device: step all environments, store the transitions, and run the updates that are due.

On a GPU there is a graph for a step of the fleet, one for a step by random actions, and one for each kind of update. An
iteration is under way when `iterate` returns; its report is read when the next one has been started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.collect.collected_steps import CollectedSteps
from velocirl.collect.sources import make_source
from velocirl.learners.decisions import Decisions
from velocirl.learners.learner import BaseLearner
from velocirl.learners.reports import Pending, Report, Reports
from velocirl.program.pace import ANY_PACE, Pace, group_of
from velocirl.program.rows.recorded import Recorded
from velocirl.program.sharing import sharing_of_memory
from velocirl.program.task import Task


class ReplayLearner(BaseLearner):
    """Off-policy learner; its environments or collectors fill its replay buffer.

    With `overlap`, the steps of the next round are taken while updates run.
    """

    def __init__(self, task: Task, device: Any, max_steps: int) -> None:
        """Create a learner whose iterations have at most `max_steps` steps of every environment."""
        config = task.config
        super().__init__(task, device, agents=1, scaling=config.precision == "fp16")
        self.sharing = sharing_of_memory(config.num_envs, config.effective_batch_size, task.reducer.size)
        self.updates = device.make_updates(task, self.networks, self.sharing.streams[task.reducer.rank])
        self.ring = self.updates.ring
        learns = self.networks.networks[task.acting]
        acts = learns.twin() if config.overlap else learns
        if config.collectors is not None:
            self.steps: Any = CollectedSteps(task, device, acts, self.ring, max_steps)
        else:
            self.steps = device.make_steps(task, acts, self.ring, make_source(task, device), max_steps)
        self._decide = self._bind_decisions()
        self.rounds = device.make_rounds(task, self.steps, self.updates, acts, lambda: self._decide())
        arrays = self.steps.arrays
        self.reports = Reports(self.networks, self.updates.program, arrays.log, arrays.reported, None, 1)
        self._gather: Callable[[], None] = self.reports.gather
        self.networks.begin_training()
        self.take()

    @property
    def envs(self) -> Any:
        """The environments, if Python steps them."""
        return self.steps.envs

    @property
    def fleet(self) -> Any:
        """The environments, if they are compiled."""
        return self.steps.fleet

    def gauges(self) -> dict[str, float]:
        """Return metrics of the device, of overlapping, and of collectors."""
        collected = self.steps.collected
        return {**super().gauges(), **self.rounds.gauges(), **({} if collected is None else collected.gauges())}

    def take(self) -> None:
        """Continue from the agent's own arrays; the collectors' weights become stale."""
        super().take()
        if self.steps.collected is not None:
            self.steps.collected.change()

    def prepare(self) -> None:
        """On a device with graphs: run everything once, capture it, and restore the initial state."""
        if not self.device.captures:
            return
        before = self.state()
        with self.device.at_work_first():
            self._begin(ANY_PACE, 0)
            if self.steps.in_kernels:
                self.rounds.try_each()
            else:  # episodes outside of graphs cannot be undone; empty records suffice
                self.ring.advance()
            self._decide()
            self.updates.try_each()
            self._gather()
            self.wait()
            if self.steps.in_kernels:
                self.rounds.capture()
                self._gather = self.device.capture(self._gather)
            if self.task.decisions and not self.steps.on_host:
                self._decide = self.device.capture(self._decide)
            self.updates.capture()
        self.take()
        self._load(before, episodes=self.steps.in_kernels)

    def run(self, schedule: Pace, steps: int) -> Pending:
        """Step all environments `schedule.rounds` times, and run the updates that fall due."""
        began = self.device.mark()
        first = steps - schedule.rounds * self.task.config.num_envs
        self._begin(schedule, first)
        laps = self.rounds.run(schedule, first)
        self.updates.end()
        self.reports.check_faults(first)
        self._gather()
        host = self.reports.send()
        return Pending(steps, first, schedule.learning_rate, host, (began, self.device.mark(), laps))

    def prefill(self, data: Recorded) -> int:
        """Fill the replay buffer from recorded data; each rank stores the records of its own environments.

        Returns the number of transitions of all ranks.
        """
        config = self.task.config
        rows = data.fill(self.ring.kind, group_of(config), apart=config.n_step > 1)
        stored = len(rows)
        if self.task.reducer.size > 1:
            rows = self.sharing.of_ring(rows, self.task.reducer.rank)
        self.wait()
        self.ring.fill(rows)
        return stored

    def drain(self) -> Report | None:
        """Wait for the current iteration; collectors pause."""
        if self.steps.collected is not None:
            self.steps.collected.pause()
        return super().drain()

    def close(self) -> None:
        """Stop the collectors, if there are any."""
        if self.steps.collected is not None:
            self.steps.collected.close()

    def iterate(self, schedule: Pace, steps: int) -> Report | None:
        """Start an iteration; if it fails, stop the collectors."""
        try:
            return super().iterate(schedule, steps)
        except BaseException:
            self.close()
            raise

    def wait(self) -> None:
        """Wait until everything that was started is done."""
        self.rounds.wait()
        super().wait()

    def fold(self) -> None:
        """Update `phases` from the counters."""
        self.rounds.fold()

    def count(self, pending: Pending) -> None:
        """Count the seconds of an iteration."""
        self.rounds.count(pending.marks)

    def state(self) -> dict[str, Any]:
        """Return the replay buffer, the networks and optimizers, the environments and every random stream."""
        self.look()
        self.wait()
        learned = {**self.updates.state(), **self.loss_scale(), **self.networks.state()}
        return {**learned, **self.ring.state(), **self.steps.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved state."""
        self._load(state, episodes=True)

    def _load(self, state: Mapping[str, NDArray[Any]], *, episodes: bool) -> None:
        self.wait()
        self.networks.load_state(state)
        self.ring.load_state(state, episodes_begin=episodes and not self.steps.in_kernels)
        self.updates.load_state(state)
        self.load_loss_scale(state)
        if episodes:
            self.steps.load_state(state)
        self.device.synchronise()

    def _begin(self, pace: Pace, step: int) -> None:
        self.updates.begin(pace, step)
        self.steps.begin()

    def _bind_decisions(self) -> Callable[[], None]:
        """Return a function that runs the algorithm's decisions by episodes before updates."""
        sums = self.steps.arrays.sums
        if sums is None:
            return lambda: None
        decisions = Decisions(self.task, self.device, self.networks, 1)
        on_host = self.steps.on_host or isinstance(sums, np.ndarray)
        return (decisions.deciding_on_host if on_host else decisions.deciding_again)(sums)
