"""Learning on CPU threads from what collectors bring: rows come through their rings, and nothing is stepped here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.n_step import cut_off
from velocirl.buffers.replay import PLACE
from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.units import BoundUnit
from velocirl.learners.block.memory import bind_driver
from velocirl.learners.block.replay import BlockReplay
from velocirl.learners.block.stepping import Stepping, enter_only
from velocirl.learners.collectors.collected import Collected
from velocirl.learners.collectors.consolidating import Batch
from velocirl.learners.collectors.free import FreeRun
from velocirl.learners.counting.counters import TIMED
from velocirl.learners.counting.episodes import add_logged
from velocirl.learners.counting.phases import ENVIRONMENT, LEARNING, ROUND, STEPPING
from velocirl.learners.learner import Report
from velocirl.learners.pace import Pace, group_of, saved_group, updates_due


class CollectedReplay(BlockReplay):
    """Remembers what collectors bring, and learns."""

    collected: Collected

    def gauges(self) -> dict[str, float]:
        """What is known of the collectors."""
        return {**super().gauges(), **self.collected.gauges()}

    def close(self) -> None:
        """End the collectors."""
        self.collected.close()

    def drain(self) -> None:
        """Nothing is learnt any more, and nothing collected."""
        super().drain()
        self.collected.pause()

    def iterate(self, schedule: Pace, steps: int) -> Report:
        """As without collectors; where that fails, they end."""
        try:
            return super().iterate(schedule, steps)
        except BaseException:
            self.collected.close()
            raise

    def take(self) -> None:
        """Lay the parameters out anew, after something else than an update changed them; collectors take them too."""
        super().take()
        self.collected.change()

    def _make_copies(self) -> None:
        """Collectors have them."""

    def _step_units(self) -> dict[int, BoundUnit]:
        return {}

    def _bind_steps(self, stepping: Stepping) -> None:
        self._enter, self._driver = bind_driver(enter_only, stepping), self._learning_driver

    def _begin(self) -> None:
        acting = self.task.parameters[self.task.acting]
        self.collected = Collected(self.task, self.buffer.rows.dtype, lambda: acting.view(np.uint8))
        self.collected.start()
        self._free, self._learning = FreeRun(self.collected), 0

    def _run(self, first: int, pace: Pace) -> None:
        self._learning, begun = 0, now()
        if self.collected.paced:
            self._run_paced(first, pace)
        else:
            self._free.run(self, pace, first, pace.rounds * self.task.config.num_envs)
        counters, whole = self.program.counters[0], now() - begun
        stepping = whole - self._learning
        counters[[ENVIRONMENT, STEPPING, LEARNING]] += stepping, stepping, self._learning
        counters[[ROUND, ROUND + TIMED]] = 1

    def _run_paced(self, first: int, pace: Pace) -> None:
        """Round by round, as if they were taken here."""
        collected, buffer, copies = self.collected, self.buffer, self.task.config.num_envs
        collected.begin(pace, first)
        for t in range(pace.rounds):
            place, step = int(buffer.counts[PLACE]), first + (t + 1) * copies
            broken = collected.take(t, first, buffer.rows[place : place + copies], self._log, self._reported)
            for which in broken:
                cut_off(buffer.rows, buffer.counts, copies, which)
            self._enter(0, 1)
            self._add_up(self._log.ends[0, t] >= 0, self._reported[:, 0, t], np.arange(copies))
            due = updates_due(step, copies, pace)
            if due:
                self.improve(step, due)
            collected.learnt(due)

    def enter(self, batch: Batch, position: int) -> None:
        """Remember a batch, the first of which is this iteration's so many-th transition."""
        buffer, count = self.buffer, len(batch.rows)
        places = (int(buffer.counts[PLACE]) + np.arange(count)) % buffer.capacity
        buffer.rows[places] = batch.rows
        self._enter(0, count // group_of(self.task.config))
        batch.log(position, self._log, self._reported)
        self._add_up(batch.ended, batch.reported, batch.copies)

    def _add_up(self, ended: NDArray[np.bool_], reported: NDArray[np.float32], copies: NDArray[np.int64]) -> None:
        """Add up what episodes cost that ended, where something is decided by them."""
        if self.task.decisions:
            add_logged(ended, self.task.costs_of(reported), copies, self._sums)

    def improve(self, step: int, count: int) -> None:
        """So many updates, at which the run has taken `step` steps."""
        since = now()
        self.program.run(self._driver, step, count)
        self._learning += now() - since

    def _experience_state(self) -> dict[str, NDArray[Any]]:
        self._rng[...], self._noise[...] = self.collected.streams
        return saved_group(self.task.config)

    def _load_experience(self, state: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002 - it is taken over by now
        """Go on with new episodes; their seeds come from the policy's streams."""
        cut_off(self.buffer.rows, self.buffer.counts, group_of(self.task.config))
        self.collected.begin_anew(self._rng)
