"""How a collector acts and steps: by the same functions as a learner that collects by itself, into its ring's slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from velocirl.backends.cpu.lowering import Iteration, blocks_of_rows
from velocirl.buffers.replay import PLACE, NoBook, nothing_to_enter
from velocirl.engine.compiler.counters import allocate
from velocirl.engine.targets.team import Team
from velocirl.learners.block.networks import BlockNetworks
from velocirl.learners.block.replay_units import begin_round, entering
from velocirl.learners.block.step_units import Course, step_units
from velocirl.learners.collectors.acting_in_rollouts import in_batches, in_blocks
from velocirl.learners.collectors.ring import Ring
from velocirl.learners.counting.phases import PLACES_OF_TIME
from velocirl.learners.pace import PACE
from velocirl.learners.rows.host import HostExperience
from velocirl.learners.task import Task
from velocirl.networks.mlp import MLP
from velocirl.optim.optimisers import optimiser_from
from velocirl.program.replay import step as one_step


class BlockActing:
    """Acts by a native network, which is compiled and needs no torch."""

    def __init__(self, task: Task, ring: Ring) -> None:
        self._ring, self._parameters = ring, task.parameters[task.acting]
        self.envs = task.source.make_copies(ring.copies, seed=task.seeds.environment, threads=1, workers=None)
        self.host = HostExperience(self.envs, task.head, costs=task.reads_costs)
        self._networks = BlockNetworks(task, optimiser_from(task.config.optimiser), 1, Team(1))
        self.pace, clock, exploration = np.zeros(1, PACE), np.zeros(1, np.int64), np.zeros(1, np.float32)
        self._counts = counts = np.zeros(3, np.int64)
        course = Course(ring.rows, counts, ring.rng, ring.kept, clock, exploration, ring.log, ring.reported)
        units = step_units(task, self._networks, self.host.arrays, course)
        bind = self._networks.bind
        units["begin_round"] = bind(begin_round, self.pace, clock, exploration)
        units["enter"] = bind(
            entering(nothing_to_enter), NoBook(np.zeros(1, np.int64)), counts, len(ring.rows), ring.copies
        )
        self._step = Iteration(one_step(), units, PLACES_OF_TIME, allocate(1)[0], *blocks_of_rows(ring.copies))

    def take(self, content: Any) -> None:
        """Act with these weights from now on."""
        self._parameters[...] = content.view(np.float32)
        self._networks.pack()

    def step(self, step: int) -> None:
        """A step of all copies into the ring's own slot, at which the run has taken `step` steps."""
        slot = self._ring.slot
        self._counts[PLACE] = slot * self._ring.copies
        self.host.begin()
        self._step["step"], self._step["round"] = step, slot
        self._step.start(0, 0)
        self.host.step()
        self._step.resume(0, 0)


def make_acting(task: Task, ring: Ring) -> Any:
    """What acts and steps in this process: native where the network is."""
    native = isinstance(task.built[task.acting], MLP) and task.config.device != "python" and task.frames is None
    if native:
        return BlockActing(task, ring) if task.value is None else in_blocks(task, ring)
    from velocirl.learners.collectors.acting_in_batches import BatchActing, device_of  # which may need torch

    return BatchActing(task, ring) if task.value is None else in_batches(task, ring, device_of(task))
