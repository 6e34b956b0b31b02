"""Iteration with free-running collectors: collectors and learner do not wait while they have work."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from velocirl.collect.collectors.collected import Collected
from velocirl.collect.collectors.consolidating import LEAST, Batch
from velocirl.program.pace import Pace, updates_due

SHORT, MOST = 5e-3, 64  # seconds and number of updates at most between two checks for another batch
BACKLOG = 2 * LEAST  # transitions whose updates may be late; updates owed beyond that are skipped


class Memory(Protocol):
    """Learner that stores transitions and updates from them."""

    def enter(self, batch: Batch, position: int) -> None:
        """Store a batch; `position` is its first index in this iteration."""
        ...

    def improve(self, step: int, count: int) -> None:
        """Run `count` updates; the run has taken `step` steps."""
        ...


class FreeRun:
    """State kept from one iteration to the next: the rest of a batch, and updates owed."""

    def __init__(self, collected: Collected) -> None:
        self._collected, self._rest = collected, None
        self._owed, self._chunk = 0, 1

    _rest: Batch | None

    def run(self, memory: Memory, pace: Pace, first: int, total: int) -> int:
        """Store `total` transitions and run due updates as far as time allows. Returns the updates done."""
        collected, taken, done = self._collected, 0, 0
        collected.begin(pace, first)
        most = max(BACKLOG // pace.train_every, 1) * pace.gradient_steps
        while taken < total:
            batch = self._next(wait=self._owed == 0)
            if batch is not None:
                if len(batch.rows) > total - taken:
                    batch, self._rest = batch.parted(total - taken)
                collected.check(batch, taken, first)
                memory.enter(batch, taken)
                taken += len(batch.rows)
                collected.progress(first + taken)
                self._owed += updates_due(first + taken, len(batch.rows), pace)
                collected.leave_out(max(self._owed - most, 0))
                self._owed = min(self._owed, most)
            if self._owed:
                done += self._improve(memory.improve, first + taken)
        return done

    def _next(self, *, wait: bool) -> Batch | None:
        rest, self._rest = self._rest, None
        return rest if rest is not None else self._collected.next_batch(wait=wait)

    def _improve(self, improve: Callable[[int, int], None], step: int) -> int:
        count = min(self._owed, self._chunk)
        began = perf_counter()
        improve(step, count)
        each = (perf_counter() - began) / count
        self._chunk = min(max(int(SHORT / max(each, 1e-9)), 1), MOST)
        self._owed -= count
        self._collected.improved(count)
        return count
