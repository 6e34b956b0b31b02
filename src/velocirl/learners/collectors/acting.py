"""How a collector acts and steps: by the same functions as a learner that collects by itself, into its ring's slots."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from velocirl.buffers.replay import PLACE, NoBook, nothing_to_enter
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.targets.team import Team
from velocirl.learners.block.driver import driver_translator
from velocirl.learners.block.networks import BlockNetworks
from velocirl.learners.block.stepping import ENTER, UNITS, Stepping, decide_only, entering, record_only
from velocirl.learners.block.steps import Course, step_units
from velocirl.learners.collectors.acting_in_rollouts import in_batches, in_blocks
from velocirl.learners.collectors.ring import Ring
from velocirl.learners.pace import PACE
from velocirl.learners.rows.host import HostExperience
from velocirl.learners.task import Task
from velocirl.networks.mlp import MLP
from velocirl.optim.optimisers import optimiser_from


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
        units[ENTER] = self._networks.bind(entering(nothing_to_enter), NoBook(np.zeros(1, np.int64)), counts)
        table = np.zeros(UNITS, np.int64)
        for which, unit in units.items():
            table[which] = unit.frame
        self._held = units
        stepping = Stepping(
            units=table, update=0, decisions=np.zeros((0, 2), np.int64), counts=counts, capacity=len(ring.rows),
            copies=ring.copies, all_copies=ring.copies, rows=0, clock=clock, exploration=exploration, beta=np.zeros(1),
            updates=np.zeros(1, np.int64), pace=self.pace,
        )  # fmt: skip
        translator = driver_translator()
        self._decide = bind_unit(decide_only, (stepping,), translator, disjoint=False)
        self._record = bind_unit(record_only, (stepping,), translator, disjoint=False)

    def take(self, content: Any) -> None:
        """Act with these weights from now on."""
        self._parameters[...] = content.view(np.float32)
        self._networks.pack()

    def step(self, step: int) -> None:
        """A step of all copies into the ring's own slot, at which the run has taken `step` steps."""
        slot = self._ring.slot
        self._counts[PLACE] = slot * self._ring.copies
        self.host.begin()
        self.host.take_turn(partial(self._decide, step, 0, slot), partial(self._record, 0, 0))


def make_acting(task: Task, ring: Ring) -> Any:
    """What acts and steps in this process: native where the network is."""
    native = isinstance(task.built[task.acting], MLP) and task.config.device != "python" and task.frames is None
    if native:
        return BlockActing(task, ring) if task.value is None else in_blocks(task, ring)
    from velocirl.learners.collectors.acting_in_batches import BatchActing, device_of  # which may need torch

    return BatchActing(task, ring) if task.value is None else in_batches(task, ring, device_of(task))
