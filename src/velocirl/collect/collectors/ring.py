"""The ring of one collector: rounds of its copies' steps, written by its process alone and read by the learner alone.

Each side has a count that only it writes: how many rounds were given, and how many were taken. Nothing is locked, and
neither side ever changes what belongs to the other. One slot is always the producer's to write to, so that a round can
be stepped into shared memory even while the ring is full; it is given away by counting it, or else written over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import Frames
from velocirl.program.rows.recording import Log
from velocirl.vector.host.copies import Carver

# What a producer counts. Rounds: given, dropped because the ring was full, and stepped, which is its sign of life;
# nanoseconds that it waited; and the updates of the weights that acted last.
GIVEN, DROPPED, STEPPED, WAITED, ACTED, COUNTS = range(6)
LEAST_SLOTS = 2


class Shape:
    """What a ring has room for."""

    def __init__(
        self, kind: np.dtype[Any], copies: int, slots: int, kept: int, reported: int, picture: int = 0, steps: int = 1,
        frames: Frames | None = None,
    ) -> None:  # fmt: skip
        """`kept` numbers of a copy between rounds.

        Where records have no observations, there are `picture` bytes of them whole, or of their newest `frames` alone.
        `steps`: those of a record, which may be a whole rollout of a copy.
        """
        if slots < LEAST_SLOTS:
            raise ValueError(f"a ring needs at least {LEAST_SLOTS} slots, got {slots}")
        self.kind, self.copies, self.slots = kind, copies, slots
        self.kept, self.reported, self.picture, self.steps = kept, reported, picture, steps
        self.frames = frames


class Ring:
    """Slots for rounds of `copies` records each, with what was logged of them; and what the copies go on from."""

    def __init__(self, carve: Carver, shape: Shape) -> None:
        copies, slots = shape.copies, shape.slots
        self.copies, self.slots = copies, slots
        self.counts: NDArray[np.int64] = carve((COUNTS,), np.int64)  # the producer's
        self._taken: NDArray[np.int64] = carve((1,), np.int64)  # the consumer's
        self.rows: NDArray[Any] = carve((slots * copies,), shape.kind)
        ends = 1, slots, copies
        self.log = Log(
            carve(ends, np.int32), carve(ends, np.float32), carve(ends, np.int32), carve((copies,), np.int32)
        )
        self.reported: NDArray[np.float32] = carve((shape.reported, *ends), np.float32)
        self.faults: NDArray[np.int32] = carve(
            (slots, copies), np.int32
        )  # what was met in a round, see `recording.Log`
        self.breaks: NDArray[np.bool_] = carve((slots,), np.bool_)  # where a round does not follow the one before it
        self.rng: NDArray[np.uint64] = carve((copies, 2), np.uint64)
        # What copies keep between rounds: exploration's noise, or the discounted return and what a network remembers.
        self.kept: NDArray[np.float32] = carve((copies, shape.kept), np.float32)
        self.seen: NDArray[np.uint8] = carve((slots * copies, shape.picture), np.uint8)  # after a step,
        self.finals: NDArray[np.uint8] = carve((slots * copies, shape.picture), np.uint8)  # at an episode's end,
        self.firsts: NDArray[np.uint8] = carve((copies, shape.picture), np.uint8)  # and before the first step
        # Of frames, the newest before and after each step; and of the consumer, those before the rounds that wait.
        self.stack, size = (0, 0) if shape.frames is None else shape.frames
        self.frames: NDArray[np.uint8] = carve((slots * copies, 2, size), np.uint8)
        self.lead = np.zeros((0, copies, size), np.uint8)
        self._broken = True  # of the producer: whether the next round follows nothing that was given

    # The producer's side ----------------------------------------------------------------------------------------------

    @property
    def slot(self) -> int:
        """The slot that is the producer's to write to."""
        return int(self.counts[GIVEN]) % self.slots

    @property
    def full(self) -> bool:
        """Whether the next round would be dropped."""
        return self.counts[GIVEN] - self._taken[0] >= self.slots - 1

    def interrupt(self) -> None:
        """The next round follows nothing that was given."""
        self._broken = True

    def give(self) -> bool:
        """Give the round in that slot away, or drop it because the ring is full; says whether it was given."""
        counts, slot = self.counts, self.slot
        counts[STEPPED] += 1
        if self.full:
            counts[DROPPED] += 1
            self._broken = True
            return False
        self.breaks[slot], self.faults[slot] = self._broken, self.log.fault
        self._broken = False
        counts[GIVEN] += 1
        return True

    # The consumer's side ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many rounds wait to be taken."""
        return int(self.counts[GIVEN] - self._taken[0])

    @property
    def taken(self) -> int:
        """How many rounds were taken so far."""
        return int(self._taken[0])

    def waiting(self, most: int) -> NDArray[np.int64]:
        """The slots of the oldest rounds that wait, at most so many."""
        first = self.taken
        return np.arange(first, first + min(len(self), most)) % self.slots

    def take(self, rounds: int) -> None:
        """Give the oldest slots back, whose contents were copied."""
        self._taken[0] += rounds

    def round(self, slot: int) -> slice:
        """Where the records of a slot lie."""
        return slice(slot * self.copies, (slot + 1) * self.copies)
