"""All that a learner and its collectors share: orders, weights, and a ring for each, in one file without a name."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.collect.collectors.cell import Cell
from velocirl.collect.collectors.ring import Ring, Shape
from velocirl.collect.collectors.weights import Weights
from velocirl.engine.disk.allowance import claim
from velocirl.program.pace import PACE
from velocirl.vector.host.copies import Carver

PROCESS_BYTES = 150 * 2**20  # of a collector, before its environments


class Orders(NamedTuple):
    """What collectors are to do; rounds are counted from the start of the processes, over all of training."""

    pace: Any  # PACE
    step: int  # of the run, at the first round of these orders
    first: int  # that round
    stop: int  # the round before which collectors stop; those that run free run where this is beyond the first
    publication: int  # the number of the weights that act at first
    episodes: int  # how often episodes were to begin anew,
    seed: int  # and by which seed


ORDERS = np.dtype([("pace", PACE), *((name, np.int64) for name in Orders._fields[1:])], align=True)


@dataclass(frozen=True)
class Plan:
    """The sizes of what is shared; a collector finds everything by them."""

    collectors: int
    shape: Shape  # of each ring
    weights: int  # bytes
    ahead: int  # rounds by which paced collectors are ahead of the learner
    paced: bool

    @property
    def copies(self) -> int:
        """Those of all collectors."""
        return self.collectors * self.shape.copies


class Board:
    """The shared memory as arrays. Every array is written by one process only."""

    def __init__(self, plan: Plan, descriptor: int) -> None:
        """In the memory of a descriptor, which the first process to come enlarges."""
        self.plan = plan
        counter = Carver()
        self._carve(counter)
        if os.fstat(descriptor).st_size < counter.size:
            size = counter.size + plan.collectors * PROCESS_BYTES
            transitions = plan.shape.slots * plan.shape.copies * plan.shape.steps
            claim(size, f"{plan.collectors} collectors with rings of {transitions:,} transitions")
            os.truncate(descriptor, counter.size)
        self._carve(Carver(mmap.mmap(descriptor, counter.size)))

    def _carve(self, carve: Carver) -> None:
        plan = self.plan
        self.orders = Cell(carve, ORDERS)
        self.stopped: NDArray[np.bool_] = carve((1,), np.bool_)
        self.steps: NDArray[np.int64] = carve((1,), np.int64)  # of the run, that the learner knows of
        self.learnt: NDArray[np.int64] = carve((1,), np.int64)  # rounds after which all is learnt that was due
        self.after: NDArray[np.int64] = carve((plan.ahead + 2,), np.int64)  # the weights after those, in turn
        self.weights = Weights(carve, plan.weights, plan.ahead + 1)
        self.rings = [Ring(carve, plan.shape) for _ in range(plan.collectors)]

    def weights_for(self, number: int, orders: Any) -> int | None:
        """The publication that acts in a round, or None where it is still to come."""
        before = number - 1 - self.plan.ahead  # the last round that was learnt from
        if before < orders["first"]:
            return int(orders["publication"])
        return int(self.after[before % len(self.after)]) if self.learnt[0] > before else None
