"""Replay buffer that is written and sampled concurrently: the learner samples only steps that were shown.

The steps under way are written after the newest shown step, over the oldest ones. The oldest ones are hidden before, so
that updates do not depend on how far the collector has come.
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
    """Sample a record uniformly from those that were shown and are not hidden."""
    drawn.rows[b].weight = 1.0
    shown = min(ring.counts[FILLED], extent.capacity - hidden)
    place = ring.counts[PLACE] - shown + random.integer(rng[b], 0, shown)
    note(b, place if place >= 0 else place + extent.capacity, ring, drawn, extent)


def hide(i, r, t, ring, extent, hidden):  # noqa: ARG001
    """Exclude a record of environment i from sampling: the steps after those under way will replace it."""
    leaf = (ring.counts[PLACE] + hidden) % extent.capacity + i
    ring.tree[leaf // CHILDREN, leaf % CHILDREN] = 0.0


def sum_hidden(k, r, level, ring, extent, hidden):  # noqa: ARG001
    """Recompute the k-th node of a level above the newly hidden group."""
    below = np.int64(1)
    for _ in range(level):
        below *= CHILDREN
    first = (ring.counts[PLACE] + hidden) % extent.capacity
    node = first // below + k
    if node <= (first + extent.copies - 1) // below:
        sum_up(ring.tree, ring.starts, level, node)


class LaggingRing(BatchRing):
    """Ring with separate views: `advance` counts written groups, `show` makes them visible to sampling."""

    def __init__(self, device: Any, task: Task, clock: Clock, share: Share, rounds: int) -> None:
        """At most `rounds` steps of all environments are under way while batches are sampled."""
        self.hidden = rounds * task.config.num_envs
        super().__init__(device, task, clock, share)

    def _view(self, clock: Clock) -> tuple[Places, Timing]:
        """Return the learner's view of the ring and its timing; the steps get a clock of their own."""
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
        """Begin an iteration, when no step is under way."""
        self.device.copy(self.timing.clock.counts, self._learning.counts)
        super().begin(pace)

    def advance(self) -> None:
        """Count a written group."""
        if self.frames is not None:
            self.frames.keep()
        self._advance(0)

    def show(self) -> None:
        """Show one more group to the learner, and hide the group that will be overwritten in its place."""
        self._admit_newest()
        if self.prioritised:
            self._hide(0)
            for level, add_up in self._sum_hidden:
                add_up(level)
        self._show(0)

    def load_state(self, state: Mapping[str, NDArray[Any]], *, episodes_begin: bool) -> None:
        """Continue from a saved state, in which all steps were shown."""
        super().load_state(state, episodes_begin=episodes_begin)
        self.device.store(self.seen.counts, state["memory.counts"])
        if self.prioritised:  # states of rings without lag hide nothing
            tree = self.device.fetch(self.tree)
            places = (int(state["memory.counts"][PLACE]) + np.arange(self.hidden)) % self.capacity
            tree.reshape(-1)[places] = 0.0
            self.device.store(self.tree, tree)
            for level, add_up in self._sum_all:
                add_up(level)
            self.device.synchronise()
