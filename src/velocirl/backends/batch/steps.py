"""Environment steps into a replay buffer, in whole batches: launches and network passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from velocirl.backends.batch.lowering import Bound, Iteration
from velocirl.buffers.records import narrow
from velocirl.collect.sources import Source
from velocirl.collect.steps import Steps
from velocirl.program.pace import Pace, exploration_at
from velocirl.program.replay import POLICY, RANDOM, step_by
from velocirl.program.rows.commands import command_for
from velocirl.program.rows.frames import Steps as FrameSteps
from velocirl.program.rows.functions import Acting, Storing, as_work, step_functions
from velocirl.program.rows.recording import Ring, Sight
from velocirl.program.task import Task


class BatchSteps(Steps):
    """Steps of all environments at once.

    Environments on the learner's device write to the ring directly. The observations after a step are the network's
    next inputs. Environments on the host send each complete group of records to the ring.
    """

    def __init__(self, task: Task, device: Any, network: Any, ring: Any, source: Source, max_steps: int) -> None:
        super().__init__(task, device, source, max_steps)
        self._device, self._network, self._ring, self._copies = device, network, ring, task.part.copies
        here, on_host, self._framed = self.here, source.on_host, ring.frames is not None
        if on_host:
            self._group, counts = np.zeros(self._copies, ring.rows.dtype), np.zeros(3, np.int64)
            self._clock, self._exploration = np.zeros(1, np.int64), here.zeros(1)
            records, clock, exploration = self._group, self._clock, self._exploration
        else:
            timing = ring.timing
            records, counts, clock, exploration = ring.rows, ring.counts, timing.clock.step, timing.exploration
        self._inputs = here.zeros(0 if self._framed else self._copies, task.encoding.inputs)
        self._outputs = here.zeros(self._copies, network.outputs)
        bound = self._bind(task, records, counts, clock, exploration)
        self._read, self._send_inputs = device.mirror(self._inputs) if on_host else (self._inputs, lambda: None)
        if self._framed:
            experience = source.experience
            ring.bind_frames(experience.observation, experience.final, on_host=on_host)
            self._read = ring.frames.inputs
        if not on_host and not self._framed:
            self._look = here.launch(bound["look_ahead"], self._copies)
        self._random, self._policy = (
            Iteration(step_by(choice), bound, lambda works: here.launch(works, self._copies))
            for choice in (RANDOM, POLICY)
        )

    def begin(self) -> None:
        """Begin an iteration."""
        super().begin()
        if self.on_host:
            self._clock[:] = 0
        if self._framed:
            self._ring.frames.begin()
        elif not self.on_host:
            self._look(0)

    def explore(self, step: int, pace: Pace) -> None:
        """Set the exploration of environments on the host; a device computes it from its clock."""
        if self.on_host:
            self._exploration[0] = exploration_at(step, pace)

    def warm_up(self) -> None:
        """Take one step by random actions."""
        self._random.run()

    def step(self) -> None:
        """Take one step by the network's actions."""
        self._policy.run()

    def _bind(self, task: Task, records: Any, counts: Any, clock: Any, exploration: Any) -> dict[str, Bound]:
        here, arrays, experience = self.here, self.arrays, self.source.experience
        still = here.zeros(task.encoding.inputs)  # no normalization: keeps stored observations valid
        final = experience.final, experience.final_mask
        sight = Sight(experience.observation, *final, here.put(task.encoding.table), still, still)
        rows, common = narrow(records), (counts, arrays.noise, experience.mask, clock)
        if task.frames is None:
            ring = Ring(rows, records["observation"], records["next_observation"], *common)
        else:
            ring = FrameSteps(rows, *common)
        _, table = command_for(task.source.action_space)
        settings, outputs = here.shown(task.settings), self._outputs
        acting = Acting(
            self._inputs, outputs, outputs, experience.mask, arrays.rng, settings, clock, here.put(table)
        )  # fmt: skip
        storing = Storing(sight, ring, arrays.log, arrays.reported, exploration, arrays.sums)
        functions = step_functions(task, experience, acting, storing)
        bound: dict[str, Bound] = {name: [as_work(one)] for name, one in functions.items()}
        bound |= {
            "forward": [lambda _: self._forward()],
            "advance": here.stepping(self.fleet) if self.in_kernels else [lambda _: self.source.host.step()],
            "enter": [self._enter],
        }
        if not self.on_host:  # the observation of the last step is there already; the record begins with it
            bound |= {name: [*bound["note"], *bound[name]] for name in ("random_action", "check_output")}
            bound |= {"look": [], "store": [*bound["store"], *bound.get("look_ahead", [])]}
        return bound

    def _forward(self) -> None:
        """Run the network on the current observations."""
        if self.on_host and not self._framed:
            self._send_inputs()
        made, _ = self._network.forward(self._read)
        self.here.copy(self._outputs, made)

    def _enter(self) -> None:
        """Count the stored group."""
        if self.on_host:
            self._ring.receive(self._group)
        self._ring.advance()
        if self.on_host:
            self._clock[0] += 1
