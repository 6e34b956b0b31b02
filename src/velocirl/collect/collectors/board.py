"""Memory shared by a learner and its collectors: orders, weights, and one ring each, in an unnamed file."""

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

PROCESS_BYTES = 150 * 2**20  # of a collector process without its environments


class Orders(NamedTuple):
    """Orders to collectors; rounds are numbered from the start of the processes, over all of training."""

    pace: Any  # PACE
    step: int  # steps of the run at the first round of these orders
    first: int  # number of that round
    stop: int  # collectors stop before this round; free-running ones run if it is above `first`
    publication: int  # number of the weights that act first
    episodes: int  # number of restarts of all episodes
    seed: int  # seed of the last restart


ORDERS = np.dtype([("pace", PACE), *((name, np.int64) for name in Orders._fields[1:])], align=True)


@dataclass(frozen=True)
class Plan:
    """Sizes of the shared memory, from which a collector finds every array."""

    collectors: int
    shape: Shape  # of each ring
    weights: int  # bytes
    ahead: int  # rounds by which paced collectors are ahead of the learner
    paced: bool

    @property
    def copies(self) -> int:
        """Number of environments of all collectors."""
        return self.collectors * self.shape.copies


class Board:
    """Shared memory as arrays; each array has a single writer process."""

    def __init__(self, plan: Plan, descriptor: int) -> None:
        """Map the memory of `descriptor`, which the first process enlarges."""
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
        self.steps: NDArray[np.int64] = carve((1,), np.int64)  # steps of the run, written by the learner
        self.learnt: NDArray[np.int64] = carve((1,), np.int64)  # rounds whose due updates are done
        self.after: NDArray[np.int64] = carve((plan.ahead + 2,), np.int64)  # publication after each such round, cyclic
        self.weights = Weights(carve, plan.weights, plan.ahead + 1)
        self.rings = [Ring(carve, plan.shape) for _ in range(plan.collectors)]

    def weights_for(self, number: int, orders: Any) -> int | None:
        """Return the publication that acts in round `number`, or None if it does not exist yet."""
        before = number - 1 - self.plan.ahead  # the last round learned from
        if before < orders["first"]:
            return int(orders["publication"])
        return int(self.after[before % len(self.after)]) if self.learnt[0] > before else None
