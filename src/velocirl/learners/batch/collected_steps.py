"""Steps that collectors took, as a learner of whole batches takes them: each round is sent to the memory once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.batch.entering import Entering
from velocirl.learners.batch.pictures.collected import CollectedFrames
from velocirl.learners.batch.ring import BatchRing
from velocirl.learners.collectors.collected import Collected
from velocirl.learners.collectors.consolidating import Batch
from velocirl.learners.collectors.content import to_bytes
from velocirl.learners.collectors.free import FreeRun, Memory
from velocirl.learners.counting.episodes import add_logged
from velocirl.learners.pace import Pace, group_of, saved_group
from velocirl.learners.rows.recording import Log
from velocirl.learners.task import Task


class CollectedSteps:
    """What collectors bring, in the place of steps that are taken here."""

    in_kernels, on_host = False, True

    def __init__(self, task: Task, device: Any, network: Any, ring: BatchRing, most_steps: int) -> None:
        self.device, self._ring, self._network = device, ring, network
        copies, host = task.config.num_envs, device.on_host()
        ends = 1, most_steps, copies
        zeros = host.zeros
        self.log = Log(
            zeros(*ends, dtype=np.int32), zeros(*ends), zeros(*ends, dtype=np.int32), zeros(copies, dtype=np.int32)
        )
        self.reported = zeros(task.report_rows, *ends)
        self._written = Log(*(np.asarray(one) for one in self.log)), np.asarray(self.reported)
        self.sums = np.zeros((copies, 1 + len(task.constraints)))
        self._task = task
        self._group = np.zeros(group_of(task.config), ring.rows.dtype)
        size = 0 if task.frames is None else task.frames.stack * task.frames.size
        self._seen, self._final = np.zeros((copies, size), np.uint8), np.zeros((copies, size), np.uint8)
        self.collected = Collected(task, ring.rows.dtype, self._weights)
        self.by_rounds = self.collected.paced
        if ring.frames is not None and self.by_rounds:
            ring.bind_frames(self._seen, self._final, on_host=True)
        self.collected.start()
        self._free, self._entering = FreeRun(self.collected), None if self.by_rounds else Entering(ring)
        self._begun, self._t, self._first, self._copies = False, 0, 0, copies
        self._saved_group = saved_group(task.config)

    def begin(self) -> None:
        """Before the first step of an iteration."""
        self.device.on_host().fill(self.log.ends, -1)
        self._begun, self._t = False, 0

    def explore(self, step: int, pace: Pace) -> None:
        """How much is explored, collectors know by the pace of the iteration."""
        if not self._begun:
            self._begun, self._first = True, step
            self.collected.begin(pace, step)

    def step(self) -> None:
        """Take a round of all collectors."""
        ring, collected = self._ring, self.collected
        broken = collected.take(self._t, self._first, self._group, *self._written)
        for which in broken:
            ring.break_off(which)
        if ring.frames is not None:
            if broken:
                collected.show_first(broken, self._seen)
                ring.frames.begin()
            collected.show(self._seen, self._final)
        ring.receive(self._group)
        ring.advance()
        log, reported = self._written
        self._add_up(log.ends[0, self._t] >= 0, reported[:, 0, self._t], np.arange(self._copies))
        self._t += 1

    warm_up = step

    def run_free(self, memory: Memory, pace: Pace, first: int) -> None:
        """An iteration whose collectors run free."""
        self._free.run(memory, pace, first, pace.rounds * self._copies)

    def enter(self, batch: Batch, position: int) -> None:
        """Send a batch to the memory."""
        assert self._entering is not None  # noqa: S101 - collectors run free
        if isinstance(frames := self._ring.frames, CollectedFrames):
            self.collected.lose(frames.enter(batch, self._entering))
        else:
            self._entering.enter(batch.rows)
        batch.log(position, *self._written)
        self._add_up(batch.ended, batch.reported, batch.copies)

    def learnt(self, updates: int) -> None:
        """After so many updates that were due, collectors may go on."""
        self.collected.learnt(updates)

    def change(self) -> None:
        """Something else than an update changed the weights."""
        self.collected.change()

    def state(self) -> dict[str, NDArray[Any]]:
        """The random streams of actions; what Gymnasium's environments are in the middle of cannot be saved."""
        rng, noise = self.collected.streams
        return {"policy.rng": rng, "policy.noise": noise, **self._saved_group}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with new episodes: their seeds come from the policy's streams, so that no episode is repeated."""
        self.collected.begin_anew(state["policy.rng"])

    def _add_up(self, ended: NDArray[np.bool_], reported: NDArray[np.float32], copies: NDArray[np.int64]) -> None:
        """Add up what episodes cost that ended, where something is decided by them."""
        if self._task.decisions:
            add_logged(ended, self._task.costs_of(reported), copies, self.sums)

    def _weights(self) -> NDArray[np.uint8]:
        network = self._network
        return to_bytes(network.to_host(), network.buffers() if network.takes_statistics else {})
