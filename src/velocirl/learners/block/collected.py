"""Off-policy learning on CPU threads from collectors: transitions come through their rings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.lowering import Iteration
from velocirl.buffers.n_step import cut_off
from velocirl.buffers.replay import PLACE
from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.counters import TIMED, WHOLE
from velocirl.engine.compiler.units import BoundUnit
from velocirl.learners.block.replay import BlockReplay
from velocirl.learners.collectors.collected import Collected
from velocirl.learners.collectors.consolidating import Batch
from velocirl.learners.collectors.free import FreeRun
from velocirl.learners.counting.episodes import add_logged
from velocirl.learners.counting.phases import ENVIRONMENT, LEARNING, ROUND
from velocirl.learners.learner import Report
from velocirl.learners.pace import Pace, group_of, saved_group
from velocirl.program.iteration import Operations
from velocirl.program.replay import received_step


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

    def _step(self) -> Operations:
        return received_step()

    def _step_units(self) -> dict[str, BoundUnit]:
        return {}

    def _begin(self) -> None:
        acting = self.task.parameters[self.task.acting]
        self.collected = Collected(self.task, self.buffer.rows.dtype, lambda: acting.view(np.uint8))
        self.collected.start()
        self._free = FreeRun(self.collected)

    def _run(self, first: int, pace: Pace) -> None:
        collected, counters = self.collected, self.program.counters[0]
        before, begun = counters[[WHOLE, LEARNING]], now()
        if collected.paced:
            collected.begin(pace, first)
            super()._run(first, pace)
            collected.learnt(self._iteration["due"])
        else:
            self._free.run(self, pace, first, pace.rounds * self.task.config.num_envs)
        whole = now() - begun
        counters[WHOLE] = before[0] + whole
        counters[ENVIRONMENT] += whole - (counters[LEARNING] - before[1])
        counters[[ROUND, ROUND + TIMED]] = 1

    def _fetch(self, iteration: Iteration) -> None:
        """Take a round of all collectors, as if it had been stepped here."""
        collected, buffer, copies = self.collected, self.buffer, self.task.config.num_envs
        t, place = iteration["round"], int(buffer.counts[PLACE])
        if t > 0:
            collected.learnt(iteration["due"])
        first = iteration["step"] - t * copies
        broken = collected.take(t, first, buffer.rows[place : place + copies], self._log, self._reported)
        for which in broken:
            cut_off(buffer.rows, buffer.counts, copies, which)
        self._add_up(self._log.ends[0, t] >= 0, self._reported[:, 0, t], np.arange(copies))

    def enter(self, batch: Batch, position: int) -> None:
        """Store a batch of collectors; `position` is its first index in this iteration."""
        buffer, count = self.buffer, len(batch.rows)
        places = (int(buffer.counts[PLACE]) + np.arange(count)) % buffer.capacity
        buffer.rows[places] = batch.rows
        for _ in range(count // group_of(self.task.config)):
            self._units["enter"](0, 0)
        batch.log(position, self._log, self._reported)
        self._add_up(batch.ended, batch.reported, batch.copies)

    def _add_up(self, ended: NDArray[np.bool_], reported: NDArray[np.float32], copies: NDArray[np.int64]) -> None:
        """Add up what episodes cost that ended, where something is decided by them."""
        if self.task.decisions:
            add_logged(ended, self.task.costs_of(reported), copies, self._sums)

    def improve(self, step: int, count: int) -> None:
        """Run `count` updates, when the run has taken `step` steps."""
        since = now()
        self.learn(step, count)
        self.program.counters[0, LEARNING] += now() - since

    def _experience_state(self) -> dict[str, NDArray[Any]]:
        self._rng[...], self._noise[...] = self.collected.streams
        return saved_group(self.task.config)

    def _load_experience(self, state: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002 - it is taken over by now
        """Go on with new episodes; their seeds come from the policy's streams."""
        cut_off(self.buffer.rows, self.buffer.counts, group_of(self.task.config))
        self.collected.begin_anew(self._rng)
