"""Transitions from collectors for off-policy learners: paced rounds, or free-running batches."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.collect.collectors.board import Orders
from velocirl.collect.collectors.collection import Collection
from velocirl.collect.collectors.consolidating import Batch, Consolidator
from velocirl.collect.collectors.patience import wait_for
from velocirl.collect.collectors.ring import GIVEN, LEAST_SLOTS, Shape
from velocirl.program.faults import fault_of_rollout
from velocirl.program.pace import Pace
from velocirl.program.rows.recording import FAULT_KINDS, Log
from velocirl.program.task import Task

PUBLISH_EVERY = {"paced": 1, "free": 32}  # updates, by default
AHEAD = 2  # rounds by which several collectors are ahead of the learner, by default


class Collected(Collection):
    """Collectors of steps, and the transitions they deliver: paced or free-running."""

    def __init__(self, task: Task, kind: np.dtype[Any], content: Callable[[], NDArray[np.uint8]]) -> None:
        config, frames = task.config, task.frames
        copies = config.num_envs // config.collectors
        ahead = config.collect_ahead if config.collect_ahead is not None else AHEAD * (config.collectors > 1)
        # Paced collectors hold at most the rounds they are ahead, and the round being learned from.
        slots = ahead + LEAST_SLOTS + 1 if config.collect_mode == "paced" else config.ring_size // copies
        # Paced rings store whole observations of images; free rings, which are long, only the newest frames.
        paced = config.collect_mode == "paced"
        picture = frames.stack * frames.size if frames is not None and paced else 0
        kept = task.head.action_size
        shape = Shape(kind, copies, slots, kept, task.report_rows, picture, frames=None if paced else frames)
        super().__init__(task, shape, ahead, content)
        self._consolidator: Consolidator | None = None
        self._stop = 0
        self._orders: Orders | None = None
        every = config.publish_every
        self._publish_every = every if every is not None else PUBLISH_EVERY[config.collect_mode]
        self._unpublished = 0
        self._stale = True  # whether the weights changed since the last publication

    def begin(self, pace: Pace, step: int) -> None:
        """Start the rounds of an iteration, before which the run has taken `step` steps.

        Free-running collectors continue past its end.
        """
        self._resume()
        if self._stale:
            self.publish()
        self._stop = self._rounds + pace.rounds
        self.board.steps[0] = step
        if not self.paced and self._consolidator is None:
            self._consolidator = Consolidator(self.rings)
            weakref.finalize(self, self._consolidator.close)
        publication = self.board.weights.newest
        self._orders = Orders(tuple(pace), step, self._rounds, self._stop, publication, self._episodes, self._seed)
        self.board.orders.write(self._orders)
        self._resting = False

    def pause(self) -> None:
        """Pause free-running collectors until the next iteration; paced ones stop by themselves."""
        if not self.paced and self._orders is not None:
            self.board.orders.write(self._orders._replace(stop=self._orders.first))
            self._resting = True

    def take(self, t: int, step: int, rows: NDArray[Any], log: Log, reported: NDArray[Any]) -> list[slice]:
        """Receive the next round, number `t` of its iteration, into `rows` (environments,) and the log.

        Returns the environments whose episodes broke off before it, because their collector was replaced.
        """
        broken = []
        for own, ring in self._shares():
            self._waited += wait_for(lambda ring=ring: len(ring) > 0, self._watch_round)
            slot = ring.taken % ring.slots
            self._check(ring.faults[slot], own.start, t, step)
            if ring.breaks[slot]:
                broken.append(own)
            rows[own] = ring.rows[ring.round(slot)]
            ended = ring.log.ends[0, slot] >= 0
            log.ends[0, t, own] = np.where(ended, t * self.plan.copies + np.arange(own.start, own.stop), -1)
            log.returns[0, t, own], log.lengths[0, t, own] = ring.log.returns[0, slot], ring.log.lengths[0, slot]
            reported[:, 0, t, own] = ring.reported[:, 0, slot]
            ring.take(1)
        self._processed += self.plan.copies
        self._batches += 1
        return broken

    def show(self, seen: NDArray[np.uint8], final: NDArray[np.uint8]) -> None:
        """Copy the images (environments, bytes) of the last round: after its step, and at episode ends."""
        for own, ring in self._shares():
            slot = ring.round((ring.taken - 1) % ring.slots)
            seen[own], final[own] = ring.seen[slot], ring.finals[slot]

    def show_first(self, which: list[slice], seen: NDArray[np.uint8]) -> None:
        """Copy the images before that round, for environments whose episodes began with it."""
        for own, ring in self._shares():
            if own in which:
                seen[own] = ring.firsts

    def next_batch(self, *, wait: bool) -> Batch | None:
        """Return the next batch of free-running collectors; None if there is none and `wait` is false."""
        consolidator = self._consolidator
        assert consolidator is not None  # noqa: S101 - begun
        self._watch()
        if wait:
            self._waited += wait_for(lambda: len(consolidator) > 0, self._watch)
        batch = consolidator.next()
        if batch is not None:
            self._processed += len(batch.rows)
            self._batches += 1
        return batch

    def check(self, batch: Batch, taken: int, first: int) -> None:
        """Raise on non-finite values in a batch that follows `taken` transitions of an iteration."""
        self._check(batch.faults, batch.first, taken // self.plan.copies, first)

    def progress(self, step: int) -> None:
        """Publish the run's step count, on which the exploration of free-running collectors depends."""
        self.board.steps[0] = step

    def lose(self, transitions: int) -> None:
        """Count transitions that cannot be stored: frames before them were lost with dropped rounds."""
        self._lost += transitions

    def leave_out(self, updates: int) -> None:
        """Count due updates that are skipped, because the learner of free-running collectors is late."""
        self._left_out += updates

    def improved(self, updates: int) -> None:
        """Count updates that were done; publish the weights every `publish_every` updates."""
        self._updates += updates
        self._unpublished += updates
        if self._unpublished >= self._publish_every:
            self.publish()

    def learnt(self, updates: int) -> None:
        """Record the end of the updates due after a round, `updates` in number: paced collectors continue."""
        board = self.board
        self.improved(updates)
        board.after[self._rounds % len(board.after)] = board.weights.newest
        self._rounds += 1
        board.learnt[0] = self._rounds

    def publish(self) -> None:
        """Publish the current weights to the collectors."""
        super().publish()
        self._unpublished, self._stale = 0, False

    def change(self) -> None:
        """Mark the weights as changed by something other than an update."""
        self._stale = True

    def _watch_round(self) -> None:
        """Watch collectors while waiting for a round; one that has not delivered is busy."""
        self._watch(lambda number: self.rings[number].counts[GIVEN] < self._stop and not len(self.rings[number]))

    def _check(self, faults: NDArray[np.int32], first: int, t: int, step: int) -> None:
        """Raise on non-finite values that environments from number `first` on met in a round."""
        if faults.any():
            copy = int(np.flatnonzero(faults)[0])
            raise fault_of_rollout((int(faults[copy]) - 1) % FAULT_KINDS, first + copy, t, step, self.plan.copies)
