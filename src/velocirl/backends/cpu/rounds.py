"""Rounds on CPU threads: steps, replay buffer and updates are one compiled iteration.

The calling thread steps the environments, stores transitions and draws batches; a team shares the updates. Where Python
steps environments, or collectors do, the iteration leaves compiled code for each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from velocirl.backends.cpu.networks import BlockNetworks
from velocirl.backends.cpu.replay_units import begin_round, end_round, updates_due
from velocirl.backends.cpu.steps import step_units
from velocirl.backends.cpu.updates import BlockUpdates
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


class BlockRounds:
    """Runs the rounds of an iteration."""

    def __init__(
        self, task: Task, networks: BlockNetworks, steps: Any, learn: BlockUpdates, decide: Callable[[], None] | None
    ) -> None:
        """`decide` is called before updates, where something is decided by episodes."""
        self.task, self.steps, self.updates = task, steps, learn
        learn.decide, self._team = decide, learn.networks.team
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
        before, begun = counters[[WHOLE, LEARNING]], now()
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
        if steps.collected is not None:  # nothing is stepped here: the rest is waiting for steps
            whole = now() - begun
            counters[WHOLE] = before[0] + whole
            counters[ENVIRONMENT] += whole - (counters[LEARNING] - before[1])
            counters[[ROUND, ROUND + TIMED]] = 1
        self.updates.ring.tidy()
        return ()

    def enter(self, batch: Batch, position: int) -> None:
        """Store a batch of collectors; `position` is its first index in this iteration."""
        self.steps.enter(batch, position)

    def improve(self, step: int, count: int) -> None:
        """Run `count` updates, when the run has taken `step` steps."""
        since = now()
        self.updates.run(count, step)
        self._counters[LEARNING] += now() - since

    def count(self, marks: tuple[Any, ...]) -> None:
        """Count the seconds of an iteration."""
        began, ended = marks[:2]
        self._meter.add(ended - began)

    def gauges(self) -> dict[str, float]:
        """Nothing to tell."""
        return {}

    def wait(self) -> None:
        """Nothing runs in the background."""

    def fold(self) -> None:
        """Bring the phases up to date."""
        self._meter.fold()

    def _run(self, unit: Any) -> None:
        self._team.run(unit, self.updates.program.tuner, 0, 0)

    def _count(self, seconds: float) -> None:
        """Add what was counted to the phases."""
        row = self._counters
        row[STEPPING] = row[WHOLE] - row[LEARNING]
        learning = min(float(row[LEARNING]) * 1e-9, seconds)
        rollout, update = read([row], ROLLOUT_COUNTS, STEPPING), read([row], UPDATE_COUNTS, LEARNING)
        clear([row])
        if rollout:
            for parent, spent, parts in (("rollout", seconds - learning, rollout), ("update", learning, update)):
                add(self.task.phases, parent, spent)
                add_parts(self.task.phases, parent, spent, parts)
