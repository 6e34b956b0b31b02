"""Thread that joins consecutive rounds of one free-running collector into batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import GOES_ON, TRUNCATED
from velocirl.collect.collectors.footage import Footage
from velocirl.collect.collectors.ring import Ring
from velocirl.program.rows.recording import Log

LEAST = 1000  # transitions of a batch; fewer after LONGEST seconds
LONGEST = 0.25  # seconds until a smaller batch is handed over
LONGEST_OF_FRAMES = 2.0  # seconds, for batches with frames
ROUNDS_OF_FRAMES = 32  # per frame of a stack: each batch stores a stack of frames again
WAITING = 4  # batches that wait for the learner at most; further rounds wait in the rings
NAP = 1e-3  # seconds, when idle


class Batch(NamedTuple):
    """Consecutive rounds of one collector with their log, one row per transition."""

    rows: NDArray[Any]
    ended: NDArray[np.bool_]
    returns: NDArray[np.float32]
    lengths: NDArray[np.int32]
    reported: NDArray[np.float32]  # (fields, rows)
    faults: NDArray[np.int32]  # (environments,) faults of the collector's environments, or 0
    first: int  # number of the first of these environments
    footage: Footage | None = None  # present if records have no observations

    @property
    def copies(self) -> NDArray[np.int64]:
        """Environment of each transition, (rows,)."""
        return self.first + np.arange(len(self.rows)) % len(self.faults)

    def parted(self, count: int) -> tuple[Batch, Batch]:
        """Split into the first `count` transitions and the rest."""
        parts = slice(0, count), slice(count, None)
        frames = (None, None) if self.footage is None else self.footage.parted(count // len(self.faults))
        first, rest = (
            Batch(
                self.rows[part], self.ended[part], self.returns[part], self.lengths[part], self.reported[:, part],
                self.faults, self.first, footage,
            )
            for part, footage in zip(parts, frames, strict=True)
        )  # fmt: skip
        return first, rest

    def log(self, position: int, log: Log, reported: NDArray[Any]) -> None:
        """Log the episodes that ended; `position` is the batch's first index in the iteration."""
        own = slice(position, position + len(self.rows))
        ends, returns, lengths = (one.reshape(-1) for one in log[:3])
        ends[own] = np.where(self.ended, np.arange(own.start, own.stop), -1)
        returns[own], lengths[own] = self.returns, self.lengths
        reported.reshape(len(reported), ends.size)[:, own] = self.reported


def rounds_of_batch(copies: int) -> int:
    """Return the number of rounds that make a batch with this many environments."""
    return -(-LEAST // copies)


def gather(ring: Ring, rounds: int, first_copy: int) -> Batch:
    """Remove the oldest rounds of a ring and return them as a batch.

    The step after the last round is stored elsewhere in the replay buffer, and so is the step after a dropped round.
    Episodes are truncated at both gaps, so that n-step returns end there. A frame buffer does that by itself.
    """
    slots, copies = ring.waiting(rounds), ring.copies
    places = (slots[:, None] * copies + np.arange(copies)).reshape(-1)
    rows, log = ring.rows[places], ring.log
    footage = _film(ring, slots, places) if ring.stack else None
    if footage is None:
        last = np.append(ring.breaks[slots[1:]], True)
        ended = rows["ended"].reshape(len(slots), copies)
        ended[last] = np.where(ended[last] == GOES_ON, TRUNCATED, ended[last])
    over, returns, lengths = (one[0, slots].reshape(-1) for one in (log.ends, log.returns, log.lengths))
    reported = ring.reported[:, 0, slots].reshape(len(ring.reported), len(places))
    batch = Batch(rows, over >= 0, returns, lengths, reported, ring.faults[slots].max(0), first_copy, footage)
    ring.take(len(slots))
    return batch


def _film(ring: Ring, slots: NDArray[np.int64], places: NDArray[np.int64]) -> Footage:
    """Return the frames of slots, the oldest of which follows the round taken last, or none."""
    breaks = ring.breaks[slots]
    lead = ring.lead[:0] if breaks[0] else ring.lead
    footage = Footage(ring.frames[places], breaks, lead, ring.taken, ring.stack)
    ring.lead = footage.following_lead().copy()
    return footage


class Consolidator:
    """Thread that empties the rings into batches in parallel with the learner; it ends with its owner."""

    def __init__(self, rings: Sequence[Ring]) -> None:
        self._batches: deque[Batch] = deque()  # appended to by the thread, popped from by the learner
        self._over, self._failures = threading.Event(), []
        ring = rings[0]
        least = rounds_of_batch(ring.copies)
        apart = ROUNDS_OF_FRAMES * ring.stack if len(rings) > 1 else 0
        patience = min(max(least, apart), ring.slots // 2) if apart else least, LONGEST_OF_FRAMES if apart else LONGEST
        work = rings, patience, self._batches, self._over, self._failures
        self._thread = threading.Thread(target=_consolidate, args=work, name="velocirl-consolidating", daemon=True)
        self._thread.start()

    _failures: list[Exception]

    def __len__(self) -> int:
        """Return the number of waiting batches; re-raise what the thread raised."""
        if self._failures:
            raise self._failures[0]
        return len(self._batches)

    def next(self) -> Batch | None:
        """Return the oldest waiting batch, or None."""
        return self._batches.popleft() if len(self) else None

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()


def _consolidate(
    rings: Sequence[Ring],
    patience: tuple[int, float],
    batches: deque[Batch],
    over: threading.Event,
    failures: list[Exception],
) -> None:
    """Run the thread. It has no reference to its owner, which could not be finalized otherwise."""
    try:
        _empty(rings, patience, batches, over)
    except Exception as error:  # noqa: BLE001 - whatever it is, the learner is told
        failures.append(error)


def _empty(rings: Sequence[Ring], patience: tuple[int, float], batches: deque[Batch], over: threading.Event) -> None:
    """Empty each ring once it holds `rounds` rounds, or any after `longest` seconds."""
    (rounds, longest), taken = patience, [time.monotonic()] * len(rings)
    while not over.is_set():
        idle = True
        for number, ring in enumerate(rings):
            waiting, now = len(ring), time.monotonic()
            if len(batches) < WAITING and (waiting >= rounds or (waiting and now > taken[number] + longest)):
                batches.append(gather(ring, waiting, number * ring.copies))
                taken[number], idle = now, False
        if idle:
            over.wait(NAP)
