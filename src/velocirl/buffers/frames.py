"""Frame storage for uint8 observations: each step stores only its newest frame, once.

An observation is a stack of frames, the oldest first. It is assembled when read, from the frames of the preceding
steps. An episode's first frame replaces the missing ones before it.

In a replay buffer, the frames of step s of all environments form group s of a ring. The ring has `stack` more groups
than there are steps, so that the stack of every stored step is complete. The observation after a step is complete, too:
its newest frame is the next step's, which is written before that step is taken. Only after truncation it is another
frame. Such final frames are stored behind the ring, where each environment has its own small ring.
"""

from __future__ import annotations

from typing import NamedTuple

from velocirl.buffers.records import Frames
from velocirl.buffers.replay import PLACE, TOTAL


class Room(NamedTuple):
    """Sizes of a frame buffer."""

    stack: int  # frames of an observation
    size: int  # bytes of a frame
    copies: int
    capacity: int  # steps of all environments
    groups: int  # of the ring of frames
    finals: int  # final frames of each environment behind it

    @property
    def rows(self) -> int:
        """Number of frames that fit."""
        return (self.groups + self.finals) * self.copies


def room_for(frames: Frames, copies: int, capacity: int, finals: int) -> Room:
    """Return the sizes of a frame buffer for `capacity` steps."""
    return Room(frames.stack, frames.size, copies, capacity, capacity // copies + frames.stack, max(finals, 1))


def frame_of(newest, before, age, back, copies, around):
    """Return the row of a stack's frame, `back` steps before its newest; `before` is the row preceding `newest`.

    `age` frames of the episode precede the newest. Rows wrap around within the first `around`.
    """
    steps = min(back, age)
    row = newest
    if steps > 0:
        row = before - (steps - 1) * copies
        if row < 0:
            row += around
    return row


def step_at(counts, room, place):
    """Return the number of the step whose record is at index `place`, for one index or many."""
    newer = (counts[PLACE] - 1 - place + room.capacity) % room.capacity // room.copies
    return counts[TOTAL] // room.copies - 1 - newer


def frame_at(room, step, copy):
    """Return the row of the newest frame of a step; for one step or many, from `stack` before the first on."""
    return (step + room.groups) % room.groups * room.copies + copy


def final_at(room, copy, final):
    """Return the row of the last frame of a truncated episode."""
    return room.groups * room.copies + copy * room.finals + final
