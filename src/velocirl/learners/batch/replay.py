"""Learning from a memory in whole batches: in Python, with torch, or on a GPU as CUDA graphs that the host only starts.

On a GPU there is a graph for a step of the fleet, one for a step by random actions, and one for each kind of update. An
iteration is under way when `iterate` returns; its report is read when the next one has been started.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import drawn_type, transition_type
from velocirl.engine import random
from velocirl.engine.columns import Indexed
from velocirl.engine.launching import Work
from velocirl.learners.batch.networks import (
    COUNTS,
    LEARNING_RATE,
    LOSS_SCALE,
    MAX_NORM,
    MAX_VALUE,
    MINIBATCHES,
    NUMBERS,
    RUN_STEP,
    UPDATES,
    BatchNetworks,
    Clock,
)
from velocirl.learners.batch.program import BatchProgram, Rows
from velocirl.learners.batch.reports import Pending, Reports
from velocirl.learners.batch.ring import BatchRing
from velocirl.learners.batch.steps import FleetSteps, HostSteps
from velocirl.learners.faults import NumericalError
from velocirl.learners.learner import Report
from velocirl.learners.pace import ANY_PACE, Pace, updates_due
from velocirl.learners.phases import add
from velocirl.learners.task import Task

WIDE = 64  # numbers of a field that are copied one by one, not by row
# Rounds of which one is timed: those that leave some in an iteration. Primes, to be in step with no schedule.
STRIDES, TIMED_ROUNDS = (1, 7, 13, 31, 61, 127, 251, 509, 1021), 8


def count_update(s, r, t, clock):  # noqa: ARG001 - every function of an index has the same first arguments
    """Count an update that went well."""
    if clock.counts[s, 0] == 0:
        clock.counts[s, UPDATES] += 1
        clock.counts[s, MINIBATCHES] += 1


class BatchReplay:
    """Steps all copies, remembers and learns."""

    def __init__(self, task: Task, device: Any, most_steps: int) -> None:
        config = task.config
        self.task, self.device, self.phases = task, device, task.phases
        self.clock = Clock(device.zeros(1, COUNTS, dtype=np.int64), device.zeros(1, NUMBERS, dtype=np.float64))
        numbers = np.zeros((1, NUMBERS))
        numbers[0, LOSS_SCALE] = 1.0
        device.store(self.clock.numbers, numbers)
        self.networks = BatchNetworks(task, device, 1, self.clock, scaling=False)
        kind = transition_type(task.encoding.inputs, task.action)
        drawn = drawn_type(task.action, task.fields)
        self.ring = BatchRing(device, config, kind, drawn, self.clock, task.seeds.learner)
        self._streams = device.put(random.streams(task.seeds.learner + 1, config.batch_size))
        self.program = BatchProgram(task.program, self.networks, self._rows(), config.batch_size, WIDE)
        self._counting = device.launch([Work(count_update, (self.clock,))], 1)
        make = FleetSteps if task.source.native is not None else HostSteps
        self.steps: FleetSteps | HostSteps = make(task, device, self.networks, self.ring, most_steps)
        self._reports = Reports(self.networks, self.program, self.steps.log, None, task.recent, 1)
        self._warm_up: Callable[[], None] = self.steps.warm_up
        self._step: Callable[[], None] = self.steps.step
        self._gather: Callable[[], None] = self._reports.gather
        self._updates: dict[frozenset[str], Callable[[], None]] = {}
        self._done = 0  # updates of the run, as the host counts them
        self._pending: Pending | None = None
        self._laps: list[tuple[Any, Any, Any]] = []
        self._told: Report | None = None  # a report that was read before anybody asked for it
        self._failed = False
        self._fresh = True  # whether the agent's own parameters are those of the device
        self.take()
        for name in task.trained:
            if name != task.acting:
                self.networks.networks[name].parameters_from(task.parameters[name])
        self.networks.copy_targets()
        device.synchronise()

    @property
    def envs(self) -> Any:
        """The environments, where they step on the host."""
        return getattr(self.steps, "envs", None)

    def prepare(self) -> None:
        """Where the device has graphs: run everything once, record it, and go back to where it began."""
        if not self.device.captures:
            return
        before, capture = self.state(), self.device.capture
        periods = self.task.program.periods
        kinds = [frozenset(name for name, due in zip(periods, flags, strict=True) if due)
                 for flags in product((False, True), repeat=len(periods))]  # fmt: skip
        with self.device.at_work(), warnings.catch_warnings():
            # Autograd's own thread meets the device for the first time here, which torch warns of and then sees to.
            warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
            self._begin(ANY_PACE, 0)
            if self.steps.on_host:  # whose episodes could not be taken back: records of nothing do as well
                self.ring.advance()
            else:
                self._warm_up()
                self._step()
            for kind in kinds:
                self._update(kind)
            self._gather()
            self.device.synchronise()
            if not self.steps.on_host:
                self._warm_up, self._step = capture(self._warm_up), capture(self._step)
                self._gather = capture(self._gather)
            for kind in kinds:
                self._updates[kind] = capture(lambda kind=kind: self._update(kind))
        self.take()
        self._load(before, episodes=not self.steps.on_host)

    def iterate(self, schedule: Pace, steps: int) -> Report | None:
        """Start an iteration; gives the report of this one on the CPU, of the one before on a GPU."""
        pace, copies, device = schedule, self.task.config.num_envs, self.device
        with device.at_work():
            began = device.mark()
            first = step = steps - pace.rounds * copies
            self._begin(pace, first)
            stride = max(one for one in STRIDES if one == 1 or one * TIMED_ROUNDS <= pace.rounds)
            laps: list[tuple[Any, Any, Any]] = []
            for t in range(pace.rounds):
                timed = t % stride == stride // 2
                before_step = device.mark() if timed else None
                self.steps.explore(step, pace)
                if step < pace.learning_starts:
                    self._warm_up()
                else:
                    self._step()
                step += copies
                after_step = device.mark() if timed else None
                for _ in range(updates_due(step, copies, pace)):
                    self._done += 1
                    self._learn()
                if timed:
                    laps.append((before_step, after_step, device.mark()))
            self._gather()
            host = self._reports.send()
            marks = began, device.mark()
        self._fresh = False
        before, self._pending = self._pending, Pending(steps, first, pace.learning_rate, host, (*marks, laps))
        if not device.reports_late:
            return self.drain()
        told, self._told = self._told, None
        return told if before is None else self._read(before)

    def drain(self) -> Report | None:
        """Wait for the iteration that is under way."""
        self._look()
        told, self._told = self._told, None
        return told

    def settle(self) -> None:
        """Bring the agent's own parameters up to date; after a failure they stay as they were."""
        self._look()
        if self._fresh or self._failed:
            return
        self.device.synchronise()
        self.task.parameters[self.task.acting][...] = self.networks.to_host(self.task.acting)
        self._fresh = True

    def take(self) -> None:
        """Go on from the agent's own parameters."""
        self.device.synchronise()
        acting = self.task.acting
        self.networks.networks[acting].parameters_from(self.task.parameters[acting])
        self.device.synchronise()
        self._fresh = True

    def state(self) -> dict[str, Any]:
        """The memory, the networks and optimisers, the copies and every random stream."""
        self._look()
        self.device.synchronise()
        updates = self.device.fetch(self.clock.counts)[0, UPDATES : UPDATES + 1].copy()
        own = {"learner.rng": self.device.fetch(self._streams), "learner.updates": updates}
        return {**own, **self.networks.state(), **self.ring.state(), **self.steps.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self._load(state, episodes=True)

    def _load(self, state: Mapping[str, NDArray[Any]], *, episodes: bool) -> None:
        self.device.synchronise()
        self.networks.load_state(state)
        self.ring.load_state(state, episodes_begin=episodes and self.steps.on_host)
        if episodes:
            self.steps.load_state(state)
        if state["learner.rng"].shape == (self.task.config.batch_size, 2):
            self.device.store(self._streams, state["learner.rng"])
        self._done = int(state["learner.updates"][0])
        counts = self.device.fetch(self.clock.counts)
        counts[0, UPDATES] = self._done
        self.device.store(self.clock.counts, counts)
        self.device.synchronise()

    def _rows(self) -> Rows:
        """The rows of a batch, and where networks find what they read."""
        ring, drawn = self.ring, self.ring.drawn
        names = [name for name in drawn.rows.dtype.names or () if drawn.rows.dtype[name].base == np.float32]
        fields: dict[str, Any] = {}
        for name in names:
            array = drawn.rows[name]
            fields[name] = array if len(array.shape) > 1 else array[:, None]
        fields["observation"] = Indexed(ring.rows["observation"], drawn.places)
        fields["next_observation"] = Indexed(ring.rows["next_observation"], drawn.lasts)
        inputs = self.task.encoding.inputs
        widths = {name: array.shape[-1] for name, array in fields.items() if name in names}
        return Rows(drawn.rows, fields, {**widths, "observation": inputs, "next_observation": inputs}, self._streams)

    def _begin(self, pace: Pace, step: int) -> None:
        counts = np.zeros((1, COUNTS), np.int64)
        counts[0, RUN_STEP], counts[0, UPDATES] = step, self._done
        self.device.write(self.clock.counts, counts)
        numbers = np.zeros((1, NUMBERS))
        numbers[0, [LEARNING_RATE, MAX_NORM, MAX_VALUE, LOSS_SCALE]] = (
            pace.learning_rate, pace.max_grad_norm, pace.max_grad_value, 1.0
        )  # fmt: skip
        self.device.write(self.clock.numbers, numbers)
        self.ring.begin(pace)
        self.program.begin()
        self.networks.begin()
        self.steps.begin()

    def _learn(self) -> None:
        config = self.task.config
        due = frozenset(name for name in self.task.program.periods if self._done % getattr(config, name) == 0)
        captured = self._updates.get(due)
        if captured is None:
            self._update(due)
        else:
            captured()

    def _update(self, due: frozenset[str]) -> None:
        self.ring.draw()
        self.program.run(due)
        self.ring.revise()
        self._counting(0)

    def _look(self) -> None:
        """Read the report of what is under way, so that nothing is saved or shown of an iteration that failed."""
        pending, self._pending = self._pending, None
        if pending is not None and not self._failed:  # what followed a failure is of no interest
            self._told = self._read(pending)

    def _read(self, pending: Pending) -> Report:
        """The report of an iteration, once it is done."""
        began, ended, laps = pending.marks
        (seconds,) = self.device.seconds_between(began, ended)  # waits for the last of them
        self._count(seconds, [self.device.seconds_between(*lap) for lap in laps])
        try:
            return self._reports.read(pending)[0]
        except NumericalError:
            self._failed = True
            raise

    def _count(self, seconds: float, timed: list[list[float]]) -> None:
        """Share out the seconds of an iteration as those of the rounds that were timed."""
        stepping, learning = (sum(column) for column in zip(*timed, strict=True))
        update = seconds * learning / max(stepping + learning, 1e-9)
        add(self.phases, "rollout", seconds - update)
        add(self.phases, "update", update)
