"""Offline learning on any device: an iteration has only updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.learner import BaseLearner
from velocirl.learners.reports import Pending, Reports
from velocirl.program.counting.phases import add
from velocirl.program.pace import ANY_PACE, Pace
from velocirl.program.rows.recording import Log
from velocirl.program.sharing import sharing_of_data
from velocirl.program.task import Task


class OfflineLearner(BaseLearner):
    """Offline learner. Each of several processes has a part of the data."""

    def __init__(self, task: Task, device: Any) -> None:
        super().__init__(task, device, agents=1, scaling=task.config.precision == "fp16")
        self.sharing = sharing_of_data(task.config.effective_batch_size, task.reducer.size)
        self.updates = device.make_updates(task, self.networks, self.sharing.streams[task.reducer.rank])
        self.ring = self.updates.ring
        zeros = device.zeros
        log = Log(zeros(1, 1, 1, dtype=np.int32), zeros(1, 1, 1), zeros(1, 1, 1, dtype=np.int32),
                  zeros(1, dtype=np.int32))  # fmt: skip
        device.fill(log.ends, -1)  # no episode ends
        reported = zeros(task.report_rows, 1, 1, 1)
        self.reports = Reports(self.networks, self.updates.program, log, reported, None, 1)
        self._gather: Callable[[], None] = self.reports.gather
        self.networks.begin_training()
        self.take()

    def prepare(self) -> None:
        """On a device with graphs: run everything once, capture it, and restore the initial state."""
        if not self.device.captures:
            return
        before = self.state()
        with self.device.at_work_first():
            self.updates.begin(ANY_PACE, 0)
            self.updates.try_each()
            self._gather()
            self.wait()
            self._gather = self.device.capture(self._gather)
            self.updates.capture()
        self.take()
        self.load_state(before)

    def run(self, schedule: Pace, steps: int) -> Pending:
        """Run `schedule.rounds` updates, after which the run has done `steps` updates."""
        began, first = self.device.mark(), steps - schedule.rounds
        self.updates.begin(schedule, first)
        self.updates.run(schedule.rounds, steps)
        self.updates.end()
        self._gather()
        host = self.reports.send()
        return Pending(steps, first, schedule.learning_rate, host, (began, self.device.mark()))

    def count(self, pending: Pending) -> None:
        """Count all seconds as update time."""
        (seconds,) = self.device.seconds_between(*pending.marks)
        add(self.phases, "update", seconds)
        self.updates.count(seconds)

    def state(self) -> dict[str, Any]:
        """Return the networks and optimizers, and every random stream; the data is not part of it."""
        self.look()
        self.wait()
        return {**self.updates.state(), **self.loss_scale(), **self.networks.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved state."""
        self.wait()
        self.networks.load_state(state)
        self.updates.load_state(state)
        self.load_loss_scale(state)
        self.device.synchronise()
