"""Bulk entry of records into a replay buffer on a device, from free collectors: sent and counted together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.ring import BatchRing
from velocirl.buffers.records import LOST
from velocirl.buffers.replay import FILLED, PLACE, TOTAL
from velocirl.buffers.sum_tree import CHILDREN, sum_up
from velocirl.engine.targets.launching import Work
from velocirl.program.clock import RUN_STEP

MOST = 1024  # maximum records per transfer
ROWS, STEPS, NUMBERS = range(3)  # number of records entered, and how many of them are steps of the run


def admit_entered(i, r, t, ring, entered):  # noqa: ARG001 - every function of an index has the same first arguments
    """Give a new record the greatest priority so far, or 0 if it is lost."""
    if i < entered[ROWS]:
        leaf = ring.counts[PLACE] + i
        priority = ring.greatest[0]
        if ring.rows[leaf].ended == LOST:
            priority = np.float32(0)
        ring.tree[leaf // CHILDREN, leaf % CHILDREN] = priority


def sum_entered(k, r, level, ring, entered):  # noqa: ARG001
    """Recompute the k-th node of a level above the new records."""
    below = np.int64(1)
    for _ in range(level):
        below *= CHILDREN
    node = ring.counts[PLACE] // below + k
    if node <= (ring.counts[PLACE] + entered[ROWS] - 1) // below:
        sum_up(ring.tree, ring.starts, level, node)


def advance_entered(i, r, t, ring, clock, entered, capacity):  # noqa: ARG001
    """Advance the counts past the new records."""
    rows = entered[ROWS]
    place = ring.counts[PLACE] + rows
    ring.counts[PLACE] = place if place < capacity else 0
    ring.counts[FILLED] = min(ring.counts[FILLED] + rows, capacity)
    ring.counts[TOTAL] += rows
    clock.counts[0, RUN_STEP] += entered[STEPS]


class Entering:
    """Entry of whole groups of records into a ring."""

    def __init__(self, ring: BatchRing) -> None:
        self.ring, self._device = ring, ring.device
        self._entered = entered = ring.device.zeros(NUMBERS, dtype=np.int64)
        launch, places = ring.device.launch, ring.places
        self._admit = launch([Work(admit_entered, (places, entered))], MOST) if ring.prioritised else None
        near = [(level, MOST // CHILDREN**level + 2) for level in ring.levels]
        self._sum = [(level, launch([Work(sum_entered, (places, entered))], count)) for level, count in near]
        self._advance = launch([Work(advance_entered, (places, ring.timing.clock, entered, ring.capacity))], 1)

    def enter(self, rows: NDArray[Any], *, steps: bool = True) -> None:
        """Append records of whole groups after the newest; without `steps` they only hold frames."""
        ring, first = self.ring, 0
        while first < len(rows):
            part = rows[first : first + min(MOST, ring.capacity - ring.place)]
            self._device.copy(ring.rows[ring.place : ring.place + len(part)], part)
            self._device.write(self._entered, np.array([len(part), len(part) if steps else 0]))
            if self._admit is not None:
                self._admit(0)
                for level, add_up in self._sum:
                    add_up(level)
            self._advance(0)
            ring.place = (ring.place + len(part)) % ring.capacity
            first += len(part)
