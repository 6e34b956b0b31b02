"""The machine of off-policy algorithms on torch networks: on the CPU step by step, on a GPU as CUDA graphs.

On a GPU the host only starts graphs: one for a step of the fleet, one for a step by random actions, one for each kind
of update. An iteration is under way when `iterate` returns; its report is read when the next one has been started.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.monitor.phases import add
from velocirl.learners.faults import NumericalError
from velocirl.learners.learner import Report
from velocirl.learners.pace import ANY_PACE, Pace, updates_due
from velocirl.training.torch_device import Device
from velocirl.training.torch_off_policy_reports import Pending, Reports
from velocirl.training.torch_off_policy_ring import TorchClock, TorchRing
from velocirl.training.torch_off_policy_steps import HostSteps, Steps

PREFIX = "network.buffer."
# Rounds of which one is timed: those that leave some in an iteration. Primes, to be in step with no schedule.
STRIDES, TIMED_ROUNDS = (1, 7, 13, 31, 61, 127, 251, 509, 1021), 8


class TorchOffPolicyMachine:
    """Steps all copies, remembers and learns with torch networks."""

    def __init__(
        self,
        device: Device,
        steps: Steps,
        ring: TorchRing,
        clock: TorchClock,
        update: Any,  # ValueUpdate or ActorCriticUpdate
        parameters: NDArray[np.float32],  # the agent's own
        *,
        recent: int,  # episodes that a report tells of at most
        phases: dict[str, float],
    ) -> None:
        self.device, self.steps, self.ring, self.clock, self.learner = device, steps, ring, clock, update
        self.phases, self._parameters = phases, parameters
        self._reports = Reports(device, steps.records, update, clock, ring.sizes.batch_size, recent)
        self._warm_up: Callable[[], None] = steps.warm_up
        self._step: Callable[[], None] = steps.step
        self._gather: Callable[[], None] = self._reports.gather
        self._updates: dict[tuple[bool, bool], Callable[[], None]] = {}
        self._done = 0  # updates of the run, as the host counts them
        self._pending: Pending | None = None
        self._told: Report | None = None  # a report that was read before anybody asked for it
        self._failed = False
        self._fresh = True  # whether the agent's own parameters are those of the device
        self.take()
        update.freeze()
        device.synchronise()

    def prepare(self, actor_every: int, target_every: int) -> None:
        """Where the device has graphs: run everything once, record it, and go back to where it began."""
        if not self.device.captures:
            return
        before, capture = self.state(), self.device.capture
        actors, moves = ((True,) if every == 1 else (False, True) for every in (actor_every, target_every))
        kinds = [(actor, move) for actor in actors for move in moves]
        with self.device.at_work(), warnings.catch_warnings():
            # Autograd's own thread meets the device for the first time here, which torch warns of and then sees to.
            warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")
            if self.steps.on_host:  # whose episodes could not be taken back: records of nothing do as well
                self.clock.begin(ANY_PACE, 0)
                self.ring.advance()
            else:
                self._begin(ANY_PACE, 0)
                self._warm_up()
                self._step()
            for kind in kinds:
                self._update(*kind)
            self._gather()
            self.device.synchronise()
            if not self.steps.on_host:
                self._warm_up, self._step = capture(self._warm_up), capture(self._step)
                self._gather = capture(self._gather)
            for actor, move in kinds:
                self._updates[actor, move] = capture(lambda actor=actor, move=move: self._update(actor, move))
        self.take()
        self._load(before, episodes=not self.steps.on_host)

    def iterate(self, schedule: Pace, steps: int) -> Report | None:
        """Start an iteration; gives the report of this one on the CPU, of the one before on a GPU."""
        pace, copies = schedule, self.ring.sizes.copies
        with self.device.at_work():
            began = self.device.mark()
            first = step = steps - pace.rounds * copies
            self._begin(pace, first)
            stride = max(one for one in STRIDES if one == 1 or one * TIMED_ROUNDS <= pace.rounds)
            laps: list[tuple[Any, Any, Any]] = []
            for t in range(pace.rounds):
                timed = t % stride == stride // 2
                before_step = self.device.mark() if timed else None
                if isinstance(self.steps, HostSteps):
                    self.steps.explore(step, pace)
                if step < pace.learning_starts:
                    self._warm_up()
                else:
                    self._step()
                step += copies
                after_step = self.device.mark() if timed else None
                for _ in range(updates_due(step, copies, pace)):
                    self._done += 1
                    self._learn(self._done % pace.actor_every == 0, self._done % pace.target_every == 0)
                if timed:
                    laps.append((before_step, after_step, self.device.mark()))
            self._gather()
            host = self._reports.send()
            events = began, self.device.mark()
        self._fresh = False
        before, self._pending = self._pending, Pending(steps, first, pace.learning_rate, host, events, laps)
        if not self.device.reports_late:
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
        self._parameters[...] = self.learner.network.to_host()
        self._fresh = True

    def take(self) -> None:
        """Go on from the agent's own parameters."""
        self.device.synchronise()
        self.learner.network.parameters_from(self._parameters)
        self.device.synchronise()
        self._fresh = True

    def state(self) -> dict[str, Any]:
        """The memory, the optimisers, the frozen networks, the copies, the modules' buffers and every random stream."""
        self._look()
        self.device.synchronise()
        buffers = {PREFIX + name: array for name, array in self.learner.network.buffers().items()}
        return {**self.learner.state(), **self.ring.state(), **self.steps.state(), **buffers}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self._load(state, episodes=True)

    def _load(self, state: Mapping[str, NDArray[Any]], *, episodes: bool) -> None:
        self.device.synchronise()
        self.learner.network.load_buffers(
            {name.removeprefix(PREFIX): array for name, array in state.items() if name.startswith(PREFIX)}
        )
        self.learner.load_state(state)
        self.ring.load_state(state, episodes_begin=episodes and self.steps.on_host)
        if episodes:
            self.steps.load_state(state)
        self._done = int(state["learner.steps"])
        self.device.synchronise()

    def _begin(self, pace: Pace, step: int) -> None:
        self.clock.begin(pace, step)
        self.learner.begin()
        self.steps.begin()

    def _learn(self, actor: bool, move: bool) -> None:
        captured = self._updates.get((actor, move))
        if captured is None:
            self._update(actor, move)
        else:
            captured()

    def _update(self, actor: bool, move: bool) -> None:
        self.learner.update(actor=actor, move=move)

    def _look(self) -> None:
        """Read the report of what is under way, so that nothing is saved or shown of an iteration that failed."""
        pending, self._pending = self._pending, None
        if pending is not None and not self._failed:  # what followed a failure is of no interest
            self._told = self._read(pending)

    def _read(self, pending: Pending) -> Report:
        """The report of an iteration, once it is done."""
        (seconds,) = self.device.seconds_between(*pending.events)  # waits for the last of them
        self._count(seconds, [self.device.seconds_between(*lap) for lap in pending.laps])
        try:
            return self._reports.read(pending)
        except NumericalError:
            self._failed = True
            raise

    def _count(self, seconds: float, timed: list[list[float]]) -> None:
        """Share out the seconds of an iteration as those of the rounds that were timed."""
        stepping, learning = (sum(column) for column in zip(*timed, strict=True))
        update = seconds * learning / max(stepping + learning, 1e-9)
        add(self.phases, "rollout", seconds - update)
        add(self.phases, "update", update)
