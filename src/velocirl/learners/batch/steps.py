"""Steps of the copies into a memory on a device: of a fleet that lives there, or of environments on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import narrow
from velocirl.engine import random
from velocirl.engine.disk.saved import named, within
from velocirl.engine.targets.launching import Work
from velocirl.learners.batch.collected_steps import CollectedSteps
from velocirl.learners.batch.ring import BatchRing
from velocirl.learners.pace import Pace, exploration_at
from velocirl.learners.rows.commands import command_for
from velocirl.learners.rows.experience import Experience
from velocirl.learners.rows.frames import Steps
from velocirl.learners.rows.functions import Acting, Storing, as_work, step_functions
from velocirl.learners.rows.host import HostExperience
from velocirl.learners.rows.recording import Log, Ring, Sight
from velocirl.learners.task import Task


class Stepping:
    """The work of a step on one device, into a ring or a group of records."""

    def __init__(
        self, task: Task, device: Any, experience: Experience, outputs: int, most_steps: int, records: Any, counts: Any,
        clock: Any, exploration: Any,
    ) -> None:  # fmt: skip
        part, zeros, head = task.part, device.zeros, task.head
        copies = part.copies
        self.inputs = zeros(copies if task.frames is None else 0, task.encoding.inputs)
        self.outputs = zeros(copies, outputs)
        self.noise = zeros(copies, head.action_size)
        ends = 1, most_steps, copies
        self.log = Log(
            zeros(*ends, dtype=np.int32), zeros(*ends), zeros(*ends, dtype=np.int32), zeros(copies, dtype=np.int32)
        )
        self.reported = zeros(task.report_rows, *ends)
        self.sums = zeros(copies, 1 + len(task.constraints), dtype=np.float64)
        self.rng = device.put(random.streams(task.seeds.policy, copies, part.first))
        still = zeros(task.encoding.inputs)  # nothing is normalised, so that what is remembered stays right
        final = experience.final, experience.final_mask
        sight = Sight(experience.observation, *final, device.put(task.encoding.table), still, still)
        rows = narrow(records)
        common = counts, self.noise, experience.mask, clock
        ring = Steps(rows, *common)
        if task.frames is None:
            ring = Ring(rows, records["observation"], records["next_observation"], *common)
        _, table = command_for(task.source.action_space)
        acting = Acting(
            self.inputs, self.outputs, self.outputs, experience.mask, self.rng, device.shown(task.settings), clock,
            device.put(table),
        )  # fmt: skip
        sums = self.sums if task.decisions else None
        storing = Storing(sight, ring, self.log, self.reported, exploration, sums)
        self.works = {name: as_work(one) for name, one in step_functions(task, experience, acting, storing).items()}

    def named(self, *names: str) -> list[Work]:
        """Return the work of operations by their names, of those that there are."""
        return [self.works[name] for name in names if name in self.works]


class FleetSteps:
    """Steps of a fleet that lives on the networks' own device: a pass of the network and one launch."""

    in_kernels, on_host = True, False
    by_rounds = True  # whether each round is followed by the updates that are due
    fleet: Any

    def __init__(self, task: Task, device: Any, network: Any, ring: BatchRing, most_steps: int) -> None:
        self.device, self._ring, self._copies = device, ring, task.part.copies
        self._network = network
        timing = ring.timing
        experience = self._make_copies(task)
        self._parts = parts = Stepping(
            task, device, experience, self._network.outputs, most_steps, ring.rows, ring.counts, timing.clock.step,
            timing.exploration,
        )  # fmt: skip
        self.log, self.reported, self.sums = parts.log, parts.reported, parts.sums
        self._inputs = parts.inputs
        if ring.frames is None:
            look = device.launch(parts.named("look_ahead"), self._copies)
            self._look: Callable[[], None] = lambda: look(0)
        else:
            ring.bind_frames(experience.observation, experience.final, on_host=False)
            self._inputs, self._look = ring.frames.inputs, ring.frames.begin
        self._warm_up = self._around_a_step(parts.named("note", "random_action", "command"))
        self._step = self._around_a_step(parts.named("note", "check_output", "act", "command"))

    def _make_copies(self, task: Task) -> Experience:
        source, device, first = task.source, self.device, task.part.first
        params = source.params_of(range(first, first + self._copies))
        self.fleet = device.make_fleet(source.native, self._copies, params, check=source.check)
        device.store(self.fleet.copies.rng, random.streams(task.seeds.environment, self._copies, first))
        self.fleet.target.begin(np.ones(self._copies, np.bool_))
        return device.experience(self.fleet)

    def _around_a_step(self, before: list[Work]) -> Callable[[int], None]:
        after = self._parts.named("store", "look_ahead")
        return self.device.launch([*before, *self.device.stepping(self.fleet), *after], self._copies)

    def begin(self) -> None:
        """Before the first step of an iteration."""
        self.device.fill(self.log.ends, -1)
        self.device.fill(self.log.fault, 0)
        self.device.fill(self.reported, 0)
        self._look()

    def explore(self, step: int, pace: Pace) -> None:
        """How much is explored is known on the device."""

    def learnt(self, updates: int) -> None:
        """Nobody waits for updates."""

    def warm_up(self) -> None:
        """One step by random actions."""
        self._warm_up(0)
        self._ring.advance()

    def step(self) -> None:
        """One step by the network's actions."""
        made, _ = self._network.forward(self._inputs)
        self.device.copy(self._parts.outputs, made)
        self._step(0)
        self._ring.advance()

    def state(self) -> dict[str, NDArray[Any]]:
        """The fleet, the random streams of actions, and what exploration keeps."""
        fleet = named("fleet", self.fleet.get_state())
        parts, fetch = self._parts, self.device.fetch
        return {**fleet, "policy.rng": fetch(parts.rng), "policy.noise": fetch(parts.noise)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where the copies were."""
        self.device.synchronise()
        self.fleet.set_state(within("fleet", state))
        self.device.store(self._parts.rng, state["policy.rng"])
        self.device.store(self._parts.noise, state["policy.noise"])


class TensorSteps(FleetSteps):
    """The same for copies that somebody made, which show tensors of that device; Python calls them in between."""

    in_kernels = False

    def begin(self) -> None:
        """Before the first step of an iteration."""
        self._experience.begin()
        super().begin()

    def state(self) -> dict[str, NDArray[Any]]:
        """The random streams of actions; what such environments are in the middle of cannot be saved."""
        parts, fetch = self._parts, self.device.fetch
        return {"policy.rng": fetch(parts.rng), "policy.noise": fetch(parts.noise)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with new episodes: their seeds come from the policy's streams, so that no episode is repeated."""
        self.device.store(self._parts.rng, state["policy.rng"])
        self.device.fill(self._parts.noise, 0.0)
        self._experience.begin_anew(int(state["policy.rng"][0, 0] >> np.uint64(33)))

    def _make_copies(self, task: Task) -> Experience:
        self.envs = task.source.make_copies(self._copies, seed=task.seeds.environment, threads=1, workers=None)
        self._experience = self.device.experience_of(self.envs, task.head, costs=task.reads_costs)
        return self._experience.arrays

    def _around_a_step(self, before: list[Work]) -> Callable[[int], None]:
        decide = self.device.launch(before, self._copies)
        remember = self.device.launch(self._parts.named("store", "look_ahead"), self._copies)

        def step(place: int) -> None:
            decide(place)
            self._experience.step()
            remember(place)

        return step


class HostSteps:
    """Steps of Gymnasium's environments in Python; each group of records is sent to the memory once."""

    in_kernels, on_host = False, True
    by_rounds = True

    def __init__(self, task: Task, device: Any, network: Any, ring: BatchRing, most_steps: int) -> None:
        part, workers = task.part, task.config.workers
        copies = part.copies
        self.device, self._ring, self._network = device, ring, network
        self.envs = task.source.make_copies(
            copies, seed=task.seeds.environment, threads=1, workers=workers, first=part.first
        )
        self.host = HostExperience(self.envs, task.head, costs=task.reads_costs)
        host = device.on_host()
        self._group, counts = np.zeros(copies, ring.rows.dtype), np.zeros(3, np.int64)
        self._clock, self._exploration = np.zeros(1, np.int64), host.zeros(1)
        self.parts = parts = Stepping(
            task, host, self.host.arrays, self._network.outputs, most_steps, self._group, counts, self._clock,
            self._exploration,
        )  # fmt: skip
        self.log, self.reported, self.sums, launch = parts.log, parts.reported, parts.sums, host.launch
        self._read, self._send_inputs = device.mirror(parts.inputs)
        self._look = launch(parts.named("look"), copies)
        if ring.frames is not None:
            ring.bind_frames(self.host.arrays.observation, self.host.arrays.final, on_host=True)
            self._read = ring.frames.inputs
        self._draw = launch(parts.named("random_action", "command"), copies)
        self._act = launch(parts.named("check_output", "act", "command"), copies)
        self._remember = launch(parts.named("store"), copies)

    def begin(self) -> None:
        """Before the first step of an iteration."""
        self.host.begin()
        self._clock[:] = 0
        self.device.on_host().fill(self.log.ends, -1)
        self.device.on_host().fill(self.log.fault, 0)
        self.device.on_host().fill(self.reported, 0)
        if self._ring.frames is not None:
            self._ring.frames.begin()

    def explore(self, step: int, pace: Pace) -> None:
        """How much is explored in the step that comes next."""
        self._exploration[0] = exploration_at(step, pace)

    def warm_up(self) -> None:
        """One step by random actions."""
        self._look(0)
        self._draw(0)
        self._go_on()

    def step(self) -> None:
        """One step by the network's actions."""
        self._look(0)
        if self._ring.frames is None:
            self._send_inputs()
        made, _ = self._network.forward(self._read)
        self.device.on_host().copy(self.parts.outputs, made)
        self._act(0)
        self._go_on()

    def state(self) -> dict[str, NDArray[Any]]:
        """The random streams of actions; what Gymnasium's environments are in the middle of cannot be saved."""
        fetch = self.device.on_host().fetch
        return {"policy.rng": fetch(self.parts.rng), "policy.noise": fetch(self.parts.noise)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with new episodes: their seeds come from the policy's streams, so that no episode is repeated."""
        self.parts.rng[:] = state["policy.rng"]
        self.device.on_host().fill(self.parts.noise, 0.0)
        self.host.begin_anew(int(self.parts.rng[0, 0] >> np.uint64(33)))

    def learnt(self, updates: int) -> None:
        """Nobody waits for updates."""

    def _go_on(self) -> None:
        self.host.step()
        self._remember(0)
        self._ring.receive(self._group)
        self._ring.advance()
        self._clock[0] += 1


def make_steps(task: Task, device: Any, network: Any, ring: BatchRing, most_steps: int) -> Any:
    """The steps of a task's copies, wherever these are, by the actions of a network."""
    if task.config.collectors is not None:
        return CollectedSteps(task, device, network, ring, most_steps)
    if task.source.native is not None:
        return FleetSteps(task, device, network, ring, most_steps)
    make = TensorSteps if device.steps_itself(task.source) else HostSteps
    return make(task, device, network, ring, most_steps)
