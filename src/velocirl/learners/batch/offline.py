"""Learning in whole batches from recorded data: in Python, with torch, or on a GPU, where an update is one graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.replay import MOST_ROWS
from velocirl.learners.batch.memory import BatchMemory
from velocirl.learners.batch.networks import Clock
from velocirl.learners.batch.reports import Pending, Reports
from velocirl.learners.batch.ring import BatchRing
from velocirl.learners.counting.phases import add
from velocirl.learners.pace import ANY_PACE, Pace
from velocirl.learners.reducing import Share
from velocirl.learners.rows.recording import Log
from velocirl.learners.sharing import Sharing, even_shares, sharing_of_data
from velocirl.learners.task import Task


class DataRing(BatchRing):
    """The transitions of a data set on a device, none of which is ever replaced.

    Of several processes, each has a part.
    """

    def __init__(self, device: Any, task: Task, clock: Clock, share: Share) -> None:
        self._first, self._stop = even_shares(len(task.recorded or ()), task.reducer.size)[task.reducer.rank]
        super().__init__(device, task, clock, share)
        assert task.recorded is not None  # noqa: S101 - of an algorithm that learns from data
        rows = np.zeros(self.capacity, self.kind)
        task.recorded.write(rows, self._first)
        device.store(self.rows, rows)
        device.store(self.counts, np.array([0, self.capacity, self.capacity]))

    def _capacity(self, task: Task) -> int:
        assert task.recorded is not None  # noqa: S101 - of an algorithm that learns from data
        count = self._stop - self._first
        if count > MOST_ROWS:
            raise ValueError(f"the data has {count:,} transitions, and at most {MOST_ROWS:,} are learnt from")
        return count


class BatchOffline(BatchMemory):
    """Learns from data that never changes."""

    def __init__(self, task: Task, device: Any) -> None:
        super().__init__(task, device)
        zeros = device.zeros
        nothing = Log(zeros(1, 1, 1, dtype=np.int32), zeros(1, 1, 1), zeros(1, 1, 1, dtype=np.int32),
                      zeros(1, dtype=np.int32))  # fmt: skip
        device.fill(nothing.ends, -1)  # no episode ends
        reported = zeros(task.report_rows, 1, 1, 1)
        self.reports = Reports(self.networks, self.program, nothing, reported, None, 1)
        self._gather = self.reports.gather
        self.begin_networks()
        device.synchronise()

    def prepare(self) -> None:
        """Where the device has graphs: run everything once, record it, and go back to where it began."""
        if not self.device.captures:
            return
        before = self.state()
        with self.device.at_work_first():
            self._begin(ANY_PACE, 0)
            for kind in self.task.program.kinds_of_updates():
                self._update(kind)
            self._gather()
            self.wait()
            self._gather = self.device.capture(self._gather)
            self._capture_updates()
        self.take()
        self.load_state(before)

    def run(self, schedule: Pace, steps: int) -> Pending:
        """Make so many updates as the schedule has rounds, after which the run has made `steps`."""
        began, first = self.device.mark(), steps - schedule.rounds
        self._begin(schedule, first)
        self._learn(schedule.rounds)
        self._gather()
        host = self.reports.send()
        return Pending(steps, first, schedule.learning_rate, host, (began, self.device.mark()))

    def count(self, pending: Pending) -> None:
        """All seconds are those of updates."""
        (seconds,) = self.device.seconds_between(*pending.marks)
        add(self.phases, "update", seconds)

    def state(self) -> dict[str, Any]:
        """The networks and optimisers, and every random stream; the data is none of it."""
        self.look()
        self.wait()
        return {**self.learnt_state(), **self.ring.stream_state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self.wait()
        self.load_learnt(state)
        self.ring.load_streams(state)
        self.device.synchronise()

    def _make_sharing(self) -> Sharing:
        return sharing_of_data(self.task.config.effective_batch_size, self.task.reducer.size)

    def _make_ring(self, share: Share) -> DataRing:
        return DataRing(self.device, self.task, self.clock, share)
