"""Frames: observations of bytes, of which each step stores the newest frame alone, once.

An observation is a stack of frames, the oldest first; it is put together when it is read, from the frames of the steps
before. An episode's first frame stands for those that would have been before it.

In a memory the frames of step s of all copies lie in group s of a ring, which has as many groups more than there are
steps as an observation has frames. So the stack of every step that is remembered is whole, and so is the observation
after it: its newest frame is that of the next step, which is written before that step is taken. Only where an episode
was cut off it is another one: such frames lie behind the ring, where each copy has a small ring of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from velocirl.buffers.records import Frames
from velocirl.buffers.replay import PLACE, TOTAL


class Room(NamedTuple):
    """The sizes of a memory of frames."""

    stack: int  # frames of an observation
    size: int  # bytes of a frame
    copies: int
    capacity: int  # steps of all copies
    groups: int  # of the ring of frames
    finals: int  # frames of each copy behind it

    @property
    def rows(self) -> int:
        """All frames that there is room for."""
        return (self.groups + self.finals) * self.copies


def room_for(frames: Frames, copies: int, capacity: int, finals: int) -> Room:
    """The sizes of a memory of so many steps."""
    return Room(frames.stack, frames.size, copies, capacity, capacity // copies + frames.stack, max(finals, 1))


def frame_of(newest, before, age, back, copies, around):
    """The row of a stack's frame, `back` places from its newest; `before` is the row of the one before that.

    `age` frames of the episode lie before the newest. Rows go around behind the first `around` of them.
    """
    steps = min(back, age)
    row = newest
    if steps > 0:
        row = before - (steps - 1) * copies
        if row < 0:
            row += around
    return row


def step_at(counts, room, place):
    """The number of the step whose record lies at a place; for one place or many."""
    newer = (counts[PLACE] - 1 - place + room.capacity) % room.capacity // room.copies
    return counts[TOTAL] // room.copies - 1 - newer


def frame_at(room, step, copy):
    """The row of the newest frame of a step; for one step or many, from `stack` before the first on."""
    return (step + room.groups) % room.groups * room.copies + copy


def final_at(room, copy, final):
    """The row of the last frame of an episode that was cut off."""
    return room.groups * room.copies + copy * room.finals + final
