"""Frame storage of a replay buffer that free collectors fill: segments of one collector's rounds, one after the other.

Within a segment, frames are stored as usual. The last frame of a segment is kept after it. Before the next segment,
the frames are stored that its first stacks need. Both take records marked as lost, which are never sampled or
followed. A batch that continues the one before it needs neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.frames.frames import FrameMemory
from velocirl.buffers.frames import final_at, frame_at, step_at
from velocirl.buffers.records import LOST, TRUNCATED
from velocirl.buffers.replay import TOTAL
from velocirl.collect.collectors.consolidating import Batch
from velocirl.collect.collectors.footage import AFTER, BEFORE
from velocirl.program.pace import free
from velocirl.program.rows.frames import NONE
from velocirl.program.task import Task

NOWHERE = (-1, -1)


class CollectedFrames(FrameMemory):
    """Frames that arrive with the records of a batch; the host keeps a copy of the bookkeeping."""

    _step = 0  # number of groups of records so far
    _end = NOWHERE  # collector (its first environment) and round that would continue the newest records
    _behind = 0  # preceding rounds of that collector without a gap, at most as many as stacks need

    def begin(self) -> None:
        """No-op: frames arrive with batches."""

    def keep(self) -> None:
        """No-op: frames arrive with batches."""

    def enter(self, batch: Batch, entering: Any) -> int:
        """Store a batch; returns the number of transitions that were lost, since earlier frames were dropped."""
        footage = batch.footage
        assert footage is not None  # noqa: S101 - a batch of frames
        starts = [0, *(np.flatnonzero(footage.breaks[1:]) + 1), len(footage.breaks)]
        return sum(self._enter_stretch(batch, begin, stop, entering) for begin, stop in pairwise(starts))

    def _enter_stretch(self, batch: Batch, begin: int, stop: int, entering: Any) -> int:
        """Store consecutive rounds; returns the number of lost transitions."""
        footage, copies = batch.footage, self.room.copies
        assert footage is not None  # noqa: S101 - a batch of frames
        own = slice(begin * copies, stop * copies)
        rows, frames = batch.rows[own].copy(), footage.frames[own]
        follows = not footage.breaks[begin] and self._end == (batch.first, footage.number + begin)
        lead = footage.lead if begin == 0 else footage.lead[:0]
        # Number of frames that each stack needs from before the first of these rounds.
        reach = (rows["age"].reshape(-1, copies) - np.arange(stop - begin)[:, None]).reshape(-1)
        whole = reach <= (self._behind if follows else len(lead))
        rows["ended"][~whole], rows["final"] = LOST, NONE
        if not whole.any():
            return len(rows)
        if not follows:
            lead = lead[len(lead) - max(reach[whole].max(), 0) :]
            self._begin_stretch(lead, entering)
            self._behind = len(lead)
        self._write(self._step, np.concatenate([frames[:, BEFORE], frames[-copies:, AFTER]]))
        self._keep_finals(rows, frames, entering)
        entering.enter(rows)
        self._step += stop - begin
        self._end = batch.first, footage.number + stop
        self._behind = min(self._behind + stop - begin, self.room.stack - 1)
        return int((~whole).sum())

    def _begin_stretch(self, lead: NDArray[np.uint8], entering: Any) -> None:
        """Leave a gap for the last frame of the newest records, then write the lead."""
        gap = 1 if self._step > 0 else 0
        self._write(self._step + gap, lead.reshape(-1, self.room.size))
        held: NDArray[Any] = np.zeros((gap + len(lead)) * self.room.copies, entering.ring.rows.dtype)
        held["ended"], held["final"] = LOST, NONE
        entering.enter(held, steps=False)
        self._step += gap + len(lead)

    def _write(self, step: int, frames: NDArray[np.uint8]) -> None:
        """Write the frames of whole groups from `step` on, wrapping around the end of the ring."""
        around = self.room.groups * self.room.copies
        place = frame_at(self.room, step, 0)
        while len(frames) > 0:
            part, frames = frames[: around - place], frames[around - place :]
            self.device.copy(self._store.frames[place : place + len(part)], part)
            place = 0

    def _keep_finals(self, rows: NDArray[Any], frames: NDArray[np.uint8], entering: Any) -> None:
        """Store the final frames of truncated episodes in place of the oldest ones; see `place_frames`."""
        room, lost = self.room, []
        after = self._step + len(rows) // room.copies  # the step after these rows
        for i in np.flatnonzero(rows["ended"] == TRUNCATED):
            step, copy = self._step + i // room.copies, i % room.copies
            final = int(self._cuts[copy] % room.finals)
            owner = int(self._owners[copy, final])
            if owner >= self._step:
                rows["ended"][(owner - self._step) * room.copies + copy] = LOST
            elif owner != NONE and owner >= after - room.capacity // room.copies:
                lost.append(owner * room.copies % room.capacity + copy)
            self._owners[copy, final] = step
            self._cuts[copy] += 1
            rows["final"][i] = final
            place = final_at(room, copy, final)
            self.device.copy(self._store.frames[place : place + 1], frames[i : i + 1, AFTER])
        if lost:
            entering.ring.lose(np.array(lost))

    # Saved state ------------------------------------------------------------------------------------------------------

    def load(
        self, rows: NDArray[Any], counts: NDArray[np.int64], state: Mapping[str, NDArray[Any]], *, episodes_begin: bool
    ) -> None:
        """Continue from a saved state; the next batch begins a segment, after a gap for the newest last frames."""
        del episodes_begin
        super().load(rows, counts, state, episodes_begin=False)
        self._step, self._end = int(counts[TOTAL]) // self.room.copies, NOWHERE
        places = self.device.fetch(self._store.owners)
        self._owners = np.where(places == NONE, NONE, step_at(counts, self.room, places))
        self._cuts = super()._count_cuts()

    def _count_cuts(self) -> NDArray[np.int64]:
        return self._cuts.copy()

    def _forget(self) -> None:
        super()._forget()
        self._owners = np.full((self.room.copies, self.room.finals), NONE, np.int64)
        self._cuts, self._step, self._end = np.zeros(self.room.copies, np.int64), 0, NOWHERE


def frames_of(device: Any, task: Task) -> FrameMemory:
    """Create the frame storage of a replay buffer: `CollectedFrames` with free collectors, else `FrameMemory`."""
    return (CollectedFrames if free(task.config) else FrameMemory)(device, task)
