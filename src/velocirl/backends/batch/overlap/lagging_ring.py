"""A memory that is written and drawn from at once: whoever learns sees the steps that were shown, and no others.

The steps that are under way are written behind the newest that were shown, over the oldest ones. Those are hidden
before, so that what an update reads does not depend on how far the collector has come meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.ring import BatchRing, Places, Timing, advance, note
from velocirl.buffers.replay import FILLED, PLACE
from velocirl.buffers.sum_tree import CHILDREN, sum_up
from velocirl.engine import random
from velocirl.engine.targets.launching import Work
from velocirl.program.clock import Clock
from velocirl.program.reducing import Share
from velocirl.program.task import Task


def draw_shown(b, r, t, ring, drawn, rng, extent, hidden):  # noqa: ARG001 - every function of an index has the same first arguments
    """Draw a record that was shown and is not hidden, each as probable as any other."""
    drawn.rows[b].weight = 1.0
    shown = min(ring.counts[FILLED], extent.capacity - hidden)
    place = ring.counts[PLACE] - shown + random.integer(rng[b], 0, shown)
    note(b, place if place >= 0 else place + extent.capacity, ring, drawn, extent)


def hide(i, r, t, ring, extent, hidden):  # noqa: ARG001
    """The record of copy i that the steps after those under way will replace is not drawn any more."""
    leaf = (ring.counts[PLACE] + hidden) % extent.capacity + i
    ring.tree[leaf // CHILDREN, leaf % CHILDREN] = 0.0


def sum_hidden(k, r, level, ring, extent, hidden):  # noqa: ARG001
    """Sum the k-th node of a level above such a group anew."""
    below = np.int64(1)
    for _ in range(level):
        below *= CHILDREN
    first = (ring.counts[PLACE] + hidden) % extent.capacity
    node = first // below + k
    if node <= (first + extent.copies - 1) // below:
        sum_up(ring.tree, ring.starts, level, node)


class LaggingRing(BatchRing):
    """Written by `advance`, drawn from as `show` left it: the first beside whatever the second comes before."""

    def __init__(self, device: Any, task: Task, clock: Clock, share: Share, rounds: int) -> None:
        """At most so many steps of all copies are under way while batches are drawn."""
        self.hidden = rounds * task.config.num_envs
        super().__init__(device, task, clock, share)

    def _view(self, clock: Clock) -> tuple[Places, Timing]:
        """Counts and a clock for the steps, and those of whoever learns."""
        zeros = self.device.zeros
        own = Clock(zeros(*clock.counts.shape, dtype=np.int64), zeros(1, 1, dtype=np.float64))
        self.timing = Timing(own, self.pace, zeros(1))
        self._learning = clock
        return self.places._replace(counts=zeros(3, dtype=np.int64)), Timing(clock, self.pace, zeros(1))

    def _choosing(self) -> Work:
        if self.prioritised:
            return super()._choosing()
        return Work(draw_shown, (self.seen, self.drawn, self.streams, self.extent, self.hidden))

    def _bind(self) -> None:
        super()._bind()
        launch, sizes = self.device.launch, (self.extent, self.hidden)
        self._show = launch([Work(advance, (self.seen, self.seen_timing, self.extent))], 1)
        if self.prioritised:
            copies = self._config.num_envs
            near = [(level, copies // CHILDREN**level + 2) for level in self.levels]
            self._hide = launch([Work(hide, (self.seen, *sizes))], copies)
            self._sum_hidden = [
                (level, launch([Work(sum_hidden, (self.seen, *sizes))], count)) for level, count in near
            ]

    def begin(self, pace: Any) -> None:
        """At the beginning of an iteration, when no step is under way."""
        self.device.copy(self.timing.clock.counts, self._learning.counts)
        super().begin(pace)

    def advance(self) -> None:
        """After a group was written."""
        if self.frames is not None:
            self.frames.keep()
        self._advance(0)

    def show(self) -> None:
        """Let whoever learns see one more group, and no longer the one that is overwritten in its stead."""
        self._admit_newest()
        if self.prioritised:
            self._hide(0)
            for level, add_up in self._sum_hidden:
                add_up(level)
        self._show(0)

    def load_state(self, state: Mapping[str, NDArray[Any]], *, episodes_begin: bool) -> None:
        """Go on from a state, in which all steps were shown."""
        super().load_state(state, episodes_begin=episodes_begin)
        self.device.store(self.seen.counts, state["memory.counts"])
        if self.prioritised:  # a state of one that does not lag has nothing hidden
            tree = self.device.fetch(self.tree)
            places = (int(state["memory.counts"][PLACE]) + np.arange(self.hidden)) % self.capacity
            tree.reshape(-1)[places] = 0.0
            self.device.store(self.tree, tree)
            for level, add_up in self._sum_all:
                add_up(level)
            self.device.synchronise()
