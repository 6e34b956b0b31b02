"""Datasets on a device, sampled like a ring of transitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from velocirl.backends.batch.ring import BatchRing
from velocirl.buffers.replay import MOST_ROWS
from velocirl.program.clock import Clock
from velocirl.program.reducing import Share
from velocirl.program.sharing import even_shares
from velocirl.program.task import Task


class DataRing(BatchRing):
    """Transitions of a dataset on a device; none is ever replaced.

    Where several processes train together, each holds a part.
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
