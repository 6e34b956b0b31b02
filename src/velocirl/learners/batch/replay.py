"""Learning from a memory in whole batches: in Python, with torch, or on a GPU as CUDA graphs that the host only starts.

On a GPU there is a graph for a step of the fleet, one for a step by random actions, and one for each kind of update. An
iteration is under way when `iterate` returns; its report is read when the next one has been started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed
from velocirl.learners.batch.learner import BatchLearner
from velocirl.learners.batch.networks import GOOD, LEARNING_RATE, RUN_STEP
from velocirl.learners.batch.program import BatchProgram, Rows
from velocirl.learners.batch.reports import Pending, Reports
from velocirl.learners.batch.ring import BatchRing
from velocirl.learners.batch.steps import make_steps
from velocirl.learners.collectors.consolidating import Batch
from velocirl.learners.counting.phases import add
from velocirl.learners.learner import Report
from velocirl.learners.pace import ANY_PACE, Pace, updates_due
from velocirl.learners.task import Task

# Rounds of which one is timed: those that leave some in an iteration. Primes, to be in step with no schedule.
STRIDES, TIMED_ROUNDS = (1, 7, 13, 31, 61, 127, 251, 509, 1021), 8


class BatchReplay(BatchLearner):
    """Steps all copies, remembers and learns."""

    def __init__(self, task: Task, device: Any, most_steps: int) -> None:
        config = task.config
        super().__init__(task, device, agents=1, scaling=config.precision == "fp16")
        batch, parts = config.effective_batch_size, config.gradient_accumulation
        self.ring = self._make_ring()
        self._streams = device.put(random.streams(task.seeds.learner + 1, batch))
        self.program = BatchProgram(task.program, self.networks, self._rows(), batch, parts=parts)
        self.steps = make_steps(task, device, self._make_acting(), self.ring, most_steps)
        self.reports = Reports(self.networks, self.program, self.steps.log, self.steps.reported, None, 1)
        self._warm_up: Callable[[], None] = self.steps.warm_up
        self._step: Callable[[], None] = self.steps.step
        self._gather: Callable[[], None] = self.reports.gather
        self._updates: dict[frozenset[str], Callable[[], None]] = {}
        self.begin_networks()
        device.synchronise()

    @property
    def envs(self) -> Any:
        """The environments, where Python steps them."""
        return getattr(self.steps, "envs", None)

    @property
    def fleet(self) -> Any:
        """The copies, where they are compiled."""
        return getattr(self.steps, "fleet", None)

    def gauges(self) -> dict[str, float]:
        """What is known of the device, and of collectors where there are some."""
        collected = getattr(self.steps, "collected", None)
        return super().gauges() if collected is None else {**super().gauges(), **collected.gauges()}

    def take(self) -> None:
        """Go on from the agent's own arrays; collectors do, too."""
        super().take()
        if (collected := getattr(self.steps, "collected", None)) is not None:
            collected.change()

    def prepare(self) -> None:
        """Where the device has graphs: run everything once, record it, and go back to where it began."""
        if not self.device.captures:
            return
        before, capture = self.state(), self.device.capture
        kinds = self.task.program.kinds_of_updates()
        with self.device.at_work_first():
            self._begin(ANY_PACE, 0)
            if self.steps.in_kernels:
                self._try_steps()
            else:  # whose episodes could not be taken back: records of nothing do as well
                self.ring.advance()
            for kind in kinds:
                self._update(kind)
            self._gather()
            self.wait()
            if self.steps.in_kernels:
                self._capture_steps()
                self._gather = capture(self._gather)
            for kind in kinds:
                self._updates[kind] = capture(lambda kind=kind: self._update(kind))
        self.take()
        self._load(before, episodes=self.steps.in_kernels)

    def run(self, schedule: Pace, steps: int) -> Pending:
        """Take steps, and learn whenever an update is due."""
        began = self.device.mark()
        first = steps - schedule.rounds * self.task.config.num_envs
        self._begin(schedule, first)
        laps = self._take_rounds(schedule, first)
        self._gather()
        host = self.reports.send()
        return Pending(steps, first, schedule.learning_rate, host, (began, self.device.mark(), laps))

    def _take_rounds(self, pace: Pace, first: int) -> list[tuple[Any, ...]]:
        """All steps of an iteration and the updates that are due; gives moments of some of the rounds."""
        step, copies, mark = first, self.task.config.num_envs, self.device.mark
        laps: list[tuple[Any, ...]] = []
        if not self.steps.by_rounds:
            began = mark()
            self.steps.run_free(self, pace, first)
            return [(began, began, mark())]
        stride = stride_of(pace.rounds)
        for t in range(pace.rounds):
            timed = t % stride == stride // 2
            before_step = mark() if timed else None
            self._take_step(step, pace)
            step += copies
            after_step = mark() if timed else None
            due = updates_due(step, copies, pace)
            self._learn(due)
            self.steps.learnt(due)
            if timed:
                laps.append((before_step, after_step, mark()))
        return laps

    def _take_step(self, step: int, pace: Pace) -> None:
        """One step of all copies."""
        self.steps.explore(step, pace)
        if step < pace.learning_starts:
            self._warm_up()
        else:
            self._step()

    def improve(self, step: int, count: int) -> None:  # noqa: ARG002 - the device counts
        """So many updates from what is remembered."""
        self._learn(count)

    def enter(self, batch: Batch, position: int) -> None:
        """Remember a batch of collectors, the first of which is this iteration's so many-th transition."""
        self.steps.enter(batch, position)

    def drain(self) -> Report | None:
        """Wait for the iteration that is under way; collectors rest."""
        if (collected := getattr(self.steps, "collected", None)) is not None:
            collected.pause()
        return super().drain()

    def close(self) -> None:
        """End the collectors, where there are some."""
        if (collected := getattr(self.steps, "collected", None)) is not None:
            collected.close()

    def iterate(self, schedule: Pace, steps: int) -> Report | None:
        """Start an iteration; where that fails, collectors end."""
        try:
            return super().iterate(schedule, steps)
        except BaseException:
            self.close()
            raise

    def state(self) -> dict[str, Any]:
        """The memory, the networks and optimisers, the copies and every random stream."""
        self.look()
        self.wait()
        own = {"learner.rng": self.device.fetch(self._streams), "learner.updates": np.array([self.done])}
        return {**own, **self.loss_scale(), **self.networks.state(), **self.ring.state(), **self.steps.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self._load(state, episodes=True)

    def _load(self, state: Mapping[str, NDArray[Any]], *, episodes: bool) -> None:
        self.wait()
        self.networks.load_state(state)
        self.ring.load_state(state, episodes_begin=episodes and not self.steps.in_kernels)
        if episodes:
            self.steps.load_state(state)
        if state["learner.rng"].shape == self._streams.shape:
            self.device.store(self._streams, state["learner.rng"])
        self.load_loss_scale(state)
        self.done = int(state["learner.updates"][0])
        self.device.synchronise()

    def _make_ring(self) -> BatchRing:
        return BatchRing(self.device, self.task, self.clock)

    def _make_acting(self) -> Any:
        """The network that takes the steps: the one that learns."""
        return self.networks.networks[self.task.acting]

    def _try_steps(self) -> None:
        """One step of each kind."""
        self._warm_up()
        self._step()

    def _capture_steps(self) -> None:
        """Let steps be graphs from now on."""
        self._warm_up, self._step = self.device.capture(self._warm_up), self.device.capture(self._step)

    def _rows(self) -> Rows:
        """The rows of a batch, and where networks find what they read."""
        ring, drawn = self.ring, self.ring.drawn
        names = [name for name in drawn.rows.dtype.names or () if drawn.rows.dtype[name].base == np.float32]
        fields: dict[str, Any] = {}
        for name in names:
            array = drawn.rows[name]
            fields[name] = array if len(array.shape) > 1 else array[:, None]
        if ring.frames is not None:
            fields["observation"], fields["next_observation"] = ring.frames.now, ring.frames.after
        else:
            fields["observation"] = Indexed(ring.rows["observation"], drawn.places)
            fields["next_observation"] = Indexed(ring.rows["next_observation"], drawn.lasts)
        inputs = self.task.encoding.inputs
        widths = {name: array.shape[-1] for name, array in fields.items() if name in names}
        return Rows(drawn.rows, fields, {**widths, "observation": inputs, "next_observation": inputs}, self._streams)

    def _begin(self, pace: Pace, step: int) -> None:
        counts = np.zeros(GOOD, np.int64)  # how long there was no overflow counts on
        counts[RUN_STEP] = step
        self.device.write(self.clock.counts.reshape(-1)[:GOOD], counts)
        self.device.fill(self.clock.numbers[:, LEARNING_RATE], pace.learning_rate)
        self.ring.begin(pace)
        self.program.begin()
        self.networks.begin()
        self.steps.begin()

    def _learn(self, updates: int) -> None:
        """So many updates."""
        for _ in range(updates):
            self.done += 1
            due = self.task.program.due(self.task.config, self.done)
            captured = self._updates.get(due)
            if captured is None:
                self._update(due)
            else:
                captured()

    def _update(self, due: frozenset[str]) -> None:
        self.ring.draw()
        self.program.run(due)
        self.ring.revise()

    def count(self, pending: Pending) -> None:
        """Share out the seconds of an iteration as those of the rounds that were timed."""
        began, ended, laps = pending.marks
        (seconds,) = self.device.seconds_between(began, ended)  # waits for the last of them
        timed = [self.device.seconds_between(*lap) for lap in laps]
        stepping, learning = (sum(column) for column in zip(*timed, strict=True))
        update = seconds * learning / max(stepping + learning, 1e-9)
        add(self.phases, "rollout", seconds - update)
        add(self.phases, "update", update)


def stride_of(rounds: int) -> int:
    """Of so many rounds, the distance between those that are timed."""
    return max(one for one in STRIDES if one == 1 or one * TIMED_ROUNDS <= rounds)
