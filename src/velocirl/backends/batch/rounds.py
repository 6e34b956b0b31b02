"""Rounds over whole batches: replay iterations, whose steps and updates are CUDA graphs on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.backends.batch.lowering import Iteration
from velocirl.backends.batch.updates import BatchUpdates
from velocirl.collect.collectors.consolidating import Batch
from velocirl.program.counting.phases import add
from velocirl.program.pace import ANY_PACE, Pace, updates_due
from velocirl.program.replay import received_step, replay, updates
from velocirl.program.task import Task

# One round in a stride is timed; at least TIMED_ROUNDS per iteration, if there are. Primes: in step with no schedule.
STRIDES, TIMED_ROUNDS = (1, 7, 13, 31, 61, 127, 251, 509, 1021), 8


class BatchRounds:
    """Runner of an iteration's rounds; on a GPU, steps and each kind of update are CUDA graphs."""

    def __init__(
        self, task: Task, device: Any, steps: Any, learn: BatchUpdates, decide: Callable[[], None] | None
    ) -> None:
        """`decide` is called before updates, where decisions depend on episodes."""
        self.task, self.device, self.steps, self.updates = task, device, steps, learn
        self._decide, self._pace, self._stride = decide, ANY_PACE, 1
        self._warm_up: Callable[[], None] = steps.warm_up
        self._step: Callable[[], None] = steps.step
        self._laps: list[tuple[Any, ...]] = []
        self._timed: tuple[Any, Any] | None = None  # start and end of a timed round's step
        copies = task.config.num_envs
        bound = {
            "advance": [lambda _: self._advance()],
            "enter": [lambda: None],  # a step has stored its records already
            "end_round": [lambda step: step + copies],
            "updates_due": [lambda step: updates_due(step, copies, self._pace)],
            "decide": [lambda: self._decide_now()],
            "begin_update": [lambda step: step],
            "draw": [lambda first, stop: None],  # noqa: ARG005 - the update draws: both are one graph
            "update": [lambda first, stop, step: learn.run(1, step)],  # noqa: ARG005
            "end_update": [lambda number: 0],  # noqa: ARG005
        }
        rounds = replay(received_step(), updates(decides=decide is not None, levels=False))
        self._iteration = Iteration(rounds, bound, device.launch, batch=0)

    def run(self, pace: Pace, first: int) -> list[tuple[Any, ...]]:
        """Run the rounds of an iteration that begins at step `first`; returns the marks of its timed rounds."""
        if not self.steps.by_rounds:
            began = self.device.mark()
            self.steps.run_free(self, pace, first)
            return [(began, began, self.device.mark())]
        self._pace, self._stride, self._laps = pace, stride_of(pace.rounds), []
        counters = self._iteration.counters
        counters.update(step=first, rounds=pace.rounds, due=-1)
        self._iteration.run()
        self._end_round()
        return self._laps

    def enter(self, batch: Batch, position: int) -> None:
        """Store a batch of collectors; `position` is its first index in this iteration."""
        self.steps.enter(batch, position)

    def improve(self, step: int, count: int) -> None:
        """Run `count` updates; `step` is the run's step count."""
        if count:
            self._decide_now()
        self.updates.run(count, step)

    def take_step(self, step: int, pace: Pace) -> None:
        """Take one step of all environments; `step` is the run's step count before it."""
        self.steps.explore(step, pace)
        if step < pace.learning_starts:
            self._warm_up()
        else:
            self._step()

    def try_each(self) -> None:
        """Run one step of each kind, so that they can be captured."""
        self._warm_up()
        self._step()

    def capture(self) -> None:
        """Capture steps as CUDA graphs."""
        self._warm_up, self._step = self.device.capture(self._warm_up), self.device.capture(self._step)

    def count(self, marks: tuple[Any, ...]) -> None:
        """Split an iteration's seconds in the ratio of its timed rounds."""
        began, ended, laps = marks
        (seconds,) = self.device.seconds_between(began, ended)  # waits for the end mark
        timed = [self.device.seconds_between(*lap) for lap in laps]
        stepping, learning = (sum(column) for column in zip(*timed, strict=True))
        update = seconds * learning / max(stepping + learning, 1e-9)
        add(self.task.phases, "rollout", seconds - update)
        add(self.task.phases, "update", update)

    def gauges(self) -> dict[str, float]:
        """Return no gauges."""
        return {}

    def wait(self) -> None:
        """Return at once: nothing runs in the background."""

    def fold(self) -> None:
        """No-op: the phases are up to date."""

    def _advance(self) -> None:
        counters, mark = self._iteration.counters, self.device.mark
        t = counters["round"]
        self._end_round()
        timed = t % self._stride == self._stride // 2
        before = mark() if timed else None
        self.take_step(counters["step"], self._pace)
        self._timed = (before, mark()) if timed else None

    def _end_round(self) -> None:
        """End the previous round: its due updates are done."""
        timed, self._timed = self._timed, None
        due = self._iteration.counters["due"]
        if due >= 0:
            self.steps.learnt(due)
        if timed is not None:
            self._laps.append((*timed, self.device.mark()))

    def _decide_now(self) -> None:
        if self._decide is not None:
            self._decide()


def stride_of(rounds: int) -> int:
    """Return the distance between timed rounds, for `rounds` rounds."""
    return max(one for one in STRIDES if one == 1 or one * TIMED_ROUNDS <= rounds)
