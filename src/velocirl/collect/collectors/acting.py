"""Acting and stepping in a collector, by the functions of an in-process learner, into the ring's slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from velocirl.backends.cpu.device import ThreadsDevice
from velocirl.backends.cpu.lowering import Iteration, blocks_of_rows
from velocirl.backends.cpu.networks import ThreadedNetworks
from velocirl.backends.cpu.replay_units import begin_round, entering
from velocirl.backends.cpu.steps import step_units
from velocirl.buffers.replay import PLACE, NoBook, nothing_to_enter
from velocirl.collect.collectors.acting_in_rollouts import RolloutActing
from velocirl.collect.collectors.ring import Ring
from velocirl.collect.sources import make_source
from velocirl.collect.step_arrays import StepArrays
from velocirl.engine.compiler.counters import allocate
from velocirl.networks.mlp import MLP
from velocirl.optim.optimisers import optimiser_from
from velocirl.program.counting.phases import PLACES_OF_TIME
from velocirl.program.pace import PACE
from velocirl.program.replay import step as one_step
from velocirl.program.task import Task


class ThreadedActing:
    """Acting with a native network, which is compiled and needs no torch."""

    def __init__(self, task: Task, ring: Ring) -> None:
        self._ring, self._parameters = ring, task.parameters[task.acting]
        device = ThreadsDevice(1, 1)
        source = make_source(task, device)
        self.envs, self.host = source.envs, source.host
        self._networks = ThreadedNetworks(task, optimiser_from(task.config.optimiser), 1, device.team)
        self.pace, clock, exploration = np.zeros(1, PACE), np.zeros(1, np.int64), np.zeros(1, np.float32)
        self._counts = counts = np.zeros(3, np.int64)
        arrays = StepArrays(ring.rng, ring.kept, ring.log, ring.reported, None)
        units = step_units(task, self._networks, source, arrays, ring.rows, counts, clock, exploration)
        bind = self._networks.bind
        units["begin_round"] = bind(begin_round, self.pace, clock, exploration)
        units["enter"] = bind(
            entering(nothing_to_enter), NoBook(np.zeros(1, np.int64)), counts, len(ring.rows), ring.copies
        )
        self._step = Iteration(one_step(), units, PLACES_OF_TIME, allocate(1)[0], *blocks_of_rows(ring.copies))

    def take(self, content: Any) -> None:
        """Load the weights to act with from now on."""
        self._parameters[...] = content.view(np.float32)
        self._networks.pack()

    def step(self, step: int) -> None:
        """Step all environments into the ring's current slot; the run has taken `step` steps."""
        slot = self._ring.slot
        self._counts[PLACE] = slot * self._ring.copies
        self.host.begin()
        self._step["step"], self._step["round"] = step, slot
        self._step.start(0, 0)
        self.host.step()
        self._step.resume(0, 0)


def make_acting(task: Task, ring: Ring) -> Any:
    """Create the acting side of this process: native if the network is."""
    native = isinstance(task.built[task.acting], MLP) and task.config.device != "python" and task.frames is None
    if native:
        return ThreadedActing(task, ring) if task.value is None else RolloutActing(task, ring, ThreadsDevice(1, 1))
    from velocirl.collect.collectors.acting_in_batches import BatchActing, device_of  # which may need torch

    return BatchActing(task, ring) if task.value is None else RolloutActing(task, ring, device_of(task))
