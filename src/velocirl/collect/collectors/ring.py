"""Ring of one collector: rounds of its environments' steps, with one producer process and one consumer, the learner.

Each side has a counter that only it writes: rounds given, and rounds taken. There are no locks, and neither side
changes what belongs to the other. One slot always belongs to the producer, so that it can step a round into shared
memory even while the ring is full. Counting the round publishes the slot; otherwise the next round overwrites it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import Frames
from velocirl.program.rows.recording import Log
from velocirl.vector.host.copies import Carver

# The producer's counters. Rounds: given, dropped because the ring was full, and stepped, which shows progress;
# nanoseconds waited; and the updates behind the weights that acted last.
GIVEN, DROPPED, STEPPED, WAITED, ACTED, COUNTS = range(6)
LEAST_SLOTS = 2


class Shape:
    """Sizes of a ring."""

    def __init__(
        self, kind: np.dtype[Any], copies: int, slots: int, kept: int, reported: int, picture: int = 0, steps: int = 1,
        frames: Frames | None = None,
    ) -> None:  # fmt: skip
        """Set the sizes; each environment keeps `kept` floats between rounds.

        If records have no observations, the ring stores `picture` bytes of each whole observation, or only the newest
        of its `frames`. A record has `steps` steps, and may be a whole rollout of an environment.
        """
        if slots < LEAST_SLOTS:
            raise ValueError(f"a ring needs at least {LEAST_SLOTS} slots, got {slots}")
        self.kind, self.copies, self.slots = kind, copies, slots
        self.kept, self.reported, self.picture, self.steps = kept, reported, picture, steps
        self.frames = frames


class Ring:
    """Slots for rounds of `copies` records each, their log, and the environments' state between rounds."""

    def __init__(self, carve: Carver, shape: Shape) -> None:
        copies, slots = shape.copies, shape.slots
        self.copies, self.slots = copies, slots
        self.counts: NDArray[np.int64] = carve((COUNTS,), np.int64)  # written by the producer
        self._taken: NDArray[np.int64] = carve((1,), np.int64)  # written by the consumer
        self.rows: NDArray[Any] = carve((slots * copies,), shape.kind)
        ends = 1, slots, copies
        self.log = Log(
            carve(ends, np.int32), carve(ends, np.float32), carve(ends, np.int32), carve((copies,), np.int32)
        )
        self.reported: NDArray[np.float32] = carve((shape.reported, *ends), np.float32)
        self.faults: NDArray[np.int32] = carve((slots, copies), np.int32)  # faults of each round, see `recording.Log`
        self.breaks: NDArray[np.bool_] = carve((slots,), np.bool_)  # where a round does not follow the one before it
        self.rng: NDArray[np.uint64] = carve((copies, 2), np.uint64)
        # Kept between rounds: exploration noise, or the discounted return and the recurrent state.
        self.kept: NDArray[np.float32] = carve((copies, shape.kept), np.float32)
        self.seen: NDArray[np.uint8] = carve((slots * copies, shape.picture), np.uint8)  # images after a step
        self.finals: NDArray[np.uint8] = carve((slots * copies, shape.picture), np.uint8)  # images at an episode's end
        self.firsts: NDArray[np.uint8] = carve((copies, shape.picture), np.uint8)  # images before the first step
        # The newest frames before and after each step; and, for the consumer, those before the waiting rounds.
        self.stack, size = (0, 0) if shape.frames is None else shape.frames
        self.frames: NDArray[np.uint8] = carve((slots * copies, 2, size), np.uint8)
        self.lead = np.zeros((0, copies, size), np.uint8)
        self._broken = True  # producer: whether the next round does not continue the last one given

    # The producer's side ----------------------------------------------------------------------------------------------

    @property
    def slot(self) -> int:
        """Slot that the producer may write to."""
        return int(self.counts[GIVEN]) % self.slots

    @property
    def full(self) -> bool:
        """True if the next round would be dropped."""
        return self.counts[GIVEN] - self._taken[0] >= self.slots - 1

    def interrupt(self) -> None:
        """Mark the next round as not continuing the last one given."""
        self._broken = True

    def give(self) -> bool:
        """Publish the round in the producer's slot, or drop it if the ring is full. Returns whether it was kept."""
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
        """Return the number of rounds that wait to be taken."""
        return int(self.counts[GIVEN] - self._taken[0])

    @property
    def taken(self) -> int:
        """Number of rounds taken so far."""
        return int(self._taken[0])

    def waiting(self, most: int) -> NDArray[np.int64]:
        """Return the slots of the oldest waiting rounds, at most `most`."""
        first = self.taken
        return np.arange(first, first + min(len(self), most)) % self.slots

    def take(self, rounds: int) -> None:
        """Free the oldest `rounds` slots, whose contents were copied."""
        self._taken[0] += rounds

    def round(self, slot: int) -> slice:
        """Return the slice of a slot's records."""
        return slice(slot * self.copies, (slot + 1) * self.copies)
