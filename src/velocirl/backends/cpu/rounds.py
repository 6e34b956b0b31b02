"""Rounds on CPU threads: steps, replay buffer and updates as one compiled iteration.

The calling thread steps the environments, stores transitions and samples batches; a team of threads runs the updates.
Where Python or collectors step the environments, the iteration leaves compiled code for each step.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from velocirl.backends.cpu.decisions import decision_units
from velocirl.backends.cpu.networks import ThreadedNetworks
from velocirl.backends.cpu.replay_units import begin_round, end_round, updates_due
from velocirl.backends.cpu.steps import step_units
from velocirl.backends.cpu.updates import ThreadedUpdates
from velocirl.collect.collectors.consolidating import Batch
from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.counters import TIMED, WHOLE, Meter, clear, read
from velocirl.program.counting.phases import (
    ENVIRONMENT,
    LEARNING,
    ROLLOUT_COUNTS,
    ROUND,
    STEPPING,
    UPDATE_COUNTS,
    add,
    add_parts,
)  # fmt: skip
from velocirl.program.pace import Pace
from velocirl.program.replay import received_step, replay, step
from velocirl.program.task import Task


class ThreadedRounds:
    """Runner of an iteration's rounds."""

    def __init__(
        self,
        task: Task,
        networks: ThreadedNetworks,
        steps: Any,
        learn: ThreadedUpdates,
        decide: Callable[[], None] | None,
    ) -> None:
        """`decide` is called before updates, where decisions depend on episodes."""
        self.task, self.steps, self.updates = task, steps, learn
        self._team = learn.networks.team
        if decide is not None:  # ranks meet in Python
            alone = task.reducer.size == 1
            meeting = [] if alone else [(learn.python_unit(decide), 0)]
            learn.decisions = meeting or decision_units(task, networks, steps.arrays.sums)
        every, bind = task.config.num_envs, networks.bind
        clock, exploration = np.zeros(1, np.int64), np.zeros(1, np.float32)
        units: dict[str, Any] = {
            "begin_round": bind(begin_round, learn.pace, clock, exploration),
            "end_round": bind(end_round, every),
            "updates_due": bind(updates_due, learn.pace, every),
        }
        received = steps.collected is not None
        if not received:
            ring = learn.ring
            units |= step_units(
                task, networks, steps.source, steps.arrays, ring.rows, ring.counts, clock, exploration
            )  # fmt: skip
        self._iteration = learn.iteration(replay(received_step() if received else step(), learn.operations), units)
        self._counters, self._meter = learn.program.counters[0], Meter(task.phases, "rollout", self._count)

    def run(self, pace: Pace, first: int) -> tuple[()]:
        """Run the rounds of an iteration that begins at step `first`."""
        steps, iteration, counters = self.steps, self._iteration, self._counters
        began, before, begun = perf_counter(), counters[[WHOLE, LEARNING]], now()
        if not steps.by_rounds:
            steps.run_free(self, pace, first)
        else:
            iteration["step"], iteration["rounds"] = first, pace.rounds
            if steps.collected is not None:
                steps.explore(first, pace)
            self._run(iteration.start)
            rounds = 0
            while iteration.waits:
                if rounds > 0:
                    steps.learnt(iteration["due"])
                steps.take_step()
                rounds += 1
                self._run(iteration.resume)
            steps.learnt(iteration["due"])
        if steps.collected is not None:  # no environment is stepped here: the rest is waiting for steps
            whole = now() - begun
            counters[WHOLE] = before[0] + whole
            counters[ENVIRONMENT] += whole - (counters[LEARNING] - before[1])
            counters[[ROUND, ROUND + TIMED]] = 1
        self.updates.ring.tidy()
        self._meter.add(perf_counter() - began)
        return ()

    def enter(self, batch: Batch, position: int) -> None:
        """Store a batch of collectors; `position` is its first index in this iteration."""
        self.steps.enter(batch, position)

    def improve(self, step: int, count: int) -> None:
        """Run `count` updates; `step` is the run's step count."""
        since = now()
        self.updates.run(count, step)
        self._counters[LEARNING] += now() - since

    def count(self, marks: tuple[Any, ...]) -> None:
        """The seconds of the rounds are counted already."""

    def gauges(self) -> dict[str, float]:
        """Return no gauges."""
        return {}

    def wait(self) -> None:
        """Return at once: nothing runs in the background."""

    def fold(self) -> None:
        """Bring the phases up to date."""
        self._meter.fold()

    def _run(self, unit: Any) -> None:
        self._team.run(unit, self.updates.program.tuner, 0, 0)

    def _count(self, seconds: float) -> None:
        """Add the counted times to the phases."""
        row = self._counters
        row[STEPPING] = row[WHOLE] - row[LEARNING]
        learning = min(float(row[LEARNING]) * 1e-9, seconds)
        rollout, update = read([row], ROLLOUT_COUNTS, STEPPING), read([row], UPDATE_COUNTS, LEARNING)
        clear([row])
        if rollout:
            for parent, spent, parts in (("rollout", seconds - learning, rollout), ("update", learning, update)):
                add(self.task.phases, parent, spent)
                add_parts(self.task.phases, parent, spent, parts)
