"""Replay buffers and datasets for compiled iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.frames_converted import to_observations
from velocirl.buffers.making import make_buffer
from velocirl.buffers.n_step import cut_off
from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.records import transition_type
from velocirl.buffers.replay import FILLED, PLACE, TOTAL, ReplayBuffer
from velocirl.engine.disk.saved import named, within
from velocirl.program.pace import group_of
from velocirl.program.rows.frames import room_of
from velocirl.program.sharing import even_shares
from velocirl.program.task import Task


class NativeMemory:
    """Replay buffer in RAM or in a memory-mapped file; records hold whole encoded observations."""

    frames = None  # observations are not stored frame by frame

    def __init__(self, task: Task) -> None:
        self._task = task
        self.kind = transition_type(task.encoding.inputs, task.action, task.stored)
        self.buffer: ReplayBuffer = self._make_buffer()
        self.rows, self.counts = self.buffer.rows, self.buffer.counts
        self.count_group: Callable[[], object] = lambda: None  # counts a group that was written; set by the updates
        self.group = 1 if task.recorded is not None else min(group_of(task.config), task.part.copies)

    @property
    def prioritised(self) -> PrioritisedReplayBuffer | None:
        """The buffer if it samples by priorities proportional to errors, else None."""
        return self.buffer if isinstance(self.buffer, PrioritisedReplayBuffer) else None

    def receive(self, group: NDArray[Any]) -> None:
        """Write a group at the next index; the `enter` unit counts it."""
        place = int(self.counts[PLACE])
        self.rows[place : place + len(group)] = group

    def enter(self, rows: NDArray[Any]) -> None:
        """Append whole groups of records after the newest, and count them."""
        places = (int(self.counts[PLACE]) + np.arange(len(rows))) % self.buffer.capacity
        self.rows[places] = rows
        for _ in range(0, len(rows), self.group):
            self.count_group()

    def break_off(self, which: slice) -> None:
        """Mark the newest steps of some environments as truncated."""
        cut_off(self.rows, self.counts, self.group, which)

    def fill(self, rows: NDArray[Any]) -> None:
        """Fill the buffer with these records."""
        self.buffer.add(rows)

    def tidy(self) -> None:
        """Run the buffer's maintenance after an iteration, and sync the greatest priority across ranks."""
        self.buffer.tidy()
        self.compare_priorities()

    def compare_priorities(self, rate: float = 0.0) -> float:
        """Set the greatest priority so far to its maximum over ranks; returns the minimum of their rates."""
        buffer, reducer = self.prioritised, self._task.reducer
        if buffer is None or reducer.size == 1:
            return rate
        told = np.zeros((reducer.size, 2))
        told[reducer.rank] = rate, buffer.greatest[0]
        reducer.sum(told)
        buffer.greatest[0] = told[:, 1].max()
        return float(told[:, 0].min())

    def state(self) -> dict[str, Any]:
        """Return the sampling state and the records as stored, so that a checkpoint writes only the new ones."""
        return named("memory", {"rows": self.rows[: len(self.buffer)], **self.buffer.bookkeeping()})

    def load_state(self, state: Mapping[str, NDArray[Any]], *, episodes_begin: bool) -> None:
        """Continue from a saved state; with `episodes_begin`, unfinished episodes are truncated.

        Observations that another device has stored frame by frame are converted to network inputs.
        """
        memory, task, buffer = within("memory", state), self._task, self.buffer
        if (frames := task.source.stored) is not None and "edges" in memory:
            room, factor = room_of(frames, task.source, task.config), task.encoding.pixel_factor
            own = {name: memory[name] for name in buffer.bookkeeping() if name in memory}
            memory = {**own, **to_observations(memory, room, self.kind, factor)}
        buffer.load_state(memory)
        if episodes_begin:
            self.break_off(slice(None))

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """Return the random stream of sampling."""
        return {"memory.rng": self.buffer.rng.copy()}

    def load_streams(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue with the random stream of a state."""
        self.buffer.rng[:] = state["memory.rng"]

    def _make_buffer(self) -> ReplayBuffer:
        task = self._task
        if task.recorded is None:
            return make_buffer(task.config, self.kind, task.seeds.learner, task.part.copies)
        first, stop = even_shares(len(task.recorded), task.reducer.size)[task.reducer.rank]
        buffer = ReplayBuffer(stop - first, self.kind, task.seeds.learner)
        task.recorded.write(buffer.rows, first)
        buffer.counts[[FILLED, TOTAL]] = buffer.capacity
        return buffer
