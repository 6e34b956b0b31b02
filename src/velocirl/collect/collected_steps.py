"""Steps received from collector processes instead of taken in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.frames.collected import CollectedFrames
from velocirl.collect.collectors.collected import Collected
from velocirl.collect.collectors.consolidating import Batch
from velocirl.collect.collectors.content import to_bytes
from velocirl.collect.collectors.free import FreeRun, Memory
from velocirl.collect.step_arrays import make_step_arrays
from velocirl.program.counting.episodes import add_logged
from velocirl.program.pace import Pace, group_of, saved_group
from velocirl.program.rows.recording import Log
from velocirl.program.task import Task


class CollectedSteps:
    """Step source backed by collectors: receives paced rounds, or batches from free-running collectors."""

    in_kernels, on_host = False, True
    envs = fleet = None  # they are in the collector processes

    def __init__(self, task: Task, device: Any, network: Any, ring: Any, max_steps: int) -> None:
        self._device, self._ring, self._network, self._task = device.on_host(), ring, network, task
        copies = task.config.num_envs
        self.arrays = make_step_arrays(task, self._device, max_steps)
        log = self.arrays.log
        self._written = Log(*(np.asarray(one) for one in log)), np.asarray(self.arrays.reported)
        self._group = np.zeros(group_of(task.config), ring.rows.dtype)
        size = 0 if task.frames is None else task.frames.stack * task.frames.size
        self._seen, self._final = np.zeros((copies, size), np.uint8), np.zeros((copies, size), np.uint8)
        self.collected = Collected(task, ring.rows.dtype, self._weights)
        self.by_rounds = self.collected.paced
        if ring.frames is not None and self.by_rounds:
            ring.bind_frames(self._seen, self._final, on_host=True)
        self.collected.start()
        self._free, self._entering = FreeRun(self.collected), None if self.by_rounds else device.make_entering(ring)
        self._begun, self._t, self._first, self._copies = False, 0, 0, copies
        self._saved_group = saved_group(task.config)

    @property
    def log(self) -> Log:
        """Log of the episodes that ended in this iteration."""
        return self.arrays.log

    def begin(self) -> None:
        """Begin an iteration."""
        self.arrays.begin(self._device)
        self._begun, self._t = False, 0

    def explore(self, step: int, pace: Pace) -> None:
        """Start the collectors' rounds; `pace` decides how much they explore."""
        if not self._begun:
            self._begun, self._first = True, step
            self.collected.begin(pace, step)

    def step(self) -> None:
        """Receive one round from all collectors and count it in the ring."""
        self.take_step()
        self._ring.advance()

    warm_up = step

    def take_step(self) -> None:
        """Receive one round from all collectors; the caller counts it."""
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
        log, reported = self._written
        self._add_up(log.ends[0, self._t] >= 0, reported[:, 0, self._t], np.arange(self._copies))
        self._t += 1

    def run_free(self, memory: Memory, pace: Pace, first: int) -> None:
        """Run one iteration with free-running collectors."""
        self._free.run(memory, pace, first, pace.rounds * self._copies)

    def enter(self, batch: Batch, position: int) -> None:
        """Store a batch of collectors; `position` is its first index in this iteration."""
        assert self._entering is not None  # noqa: S101 - collectors run free
        if isinstance(frames := self._ring.frames, CollectedFrames):
            self.collected.lose(frames.enter(batch, self._entering))
        else:
            self._entering.enter(batch.rows)
        batch.log(position, *self._written)
        self._add_up(batch.ended, batch.reported, batch.copies)

    def learnt(self, updates: int) -> None:
        """Let collectors continue after the `updates` that were due."""
        self.collected.learnt(updates)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the random streams of actions; the state of the environments cannot be saved."""
        arrays = self.arrays
        for own, given in zip((arrays.rng, arrays.noise), self.collected.streams, strict=True):
            self._device.store(own, given)
        return {**arrays.state(self._device), **self._saved_group}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Begin new episodes. Their seeds come from the policy's streams, so that no episode is repeated."""
        self.arrays.load_state(self._device, state, episodes_continue=False)
        self.collected.begin_anew(state["policy.rng"])

    def _add_up(self, ended: NDArray[np.bool_], reported: NDArray[np.float32], copies: NDArray[np.int64]) -> None:
        """Add up finished episodes and their costs, if the algorithm decides something by them."""
        if self.arrays.sums is not None:
            add_logged(ended, self._task.costs_of(reported), copies, np.asarray(self.arrays.sums))

    def _weights(self) -> NDArray[np.uint8]:
        network = self._network
        return to_bytes(network.to_host(), network.buffers() if network.takes_statistics else {})
