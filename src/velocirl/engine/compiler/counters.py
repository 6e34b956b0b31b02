"""Counters in compiled loops: time per kind of work, in one row of integers per thread.

Reading the clock costs about 25 ns, too much for work that takes a microsecond. Only one turn in `every` is timed, plus
the whole loop; sampled times are scaled up to the whole. The intervals are primes, so that they do not coincide with
other periods. A timed turn begins with an empty lap, which measures the cost of reading the clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.clock import now

# Fixed at compile time: without counting, loops compile as if without counters (see tools/counter_overhead.py).
COUNTING = os.environ.get("VELOCIRL_COUNTERS", "1") != "0"
# The offsets in a row. A cache line is left free on either side, so that no two threads share one.
FIRST_KIND, SECOND_KIND = 8, 11  # of turns: seen, timed, and the nanoseconds of empty laps
TIMED, EMPTY = 1, 2  # offsets from a kind's first
TIMING = 14  # whether the current turn is timed, for functions called in it
WHOLE = 15  # nanoseconds of the whole loop; later slots hold nanoseconds too,
PLACES = 16  # named by each loop
ROW = 40
PATIENCE = 0.2  # seconds between readings of the counters: reading after each short iteration would cost too much
ALWAYS = 0  # the kind of work that is always timed, and needs no scaling


class Count(NamedTuple):
    """Meaning of one slot of a row."""

    name: str  # several slots may count towards one
    place: int
    kind: int  # of turns in which it is timed


def turn(counters, kind, every):
    """Count another turn of a kind; returns whether it is to be timed."""
    if not COUNTING:
        return False
    seen = counters[kind]
    counters[kind] = seen + 1
    if seen % every == 0:
        counters[kind + TIMED] += 1
        return True
    return False


def glance(timed):
    """Return the time if `timed`, else 0."""
    if COUNTING and timed:
        return now()
    return 0


def lap(counters, place, since, timed):
    """Add the time since `since` to a counter; returns the current time."""
    if COUNTING and timed:
        moment = now()
        counters[place] += moment - since
        return moment
    return since


def start(counters, kind, timed):
    """Begin a turn: count an empty lap and return the current time."""
    return lap(counters, kind + EMPTY, glance(timed), timed)


def allocate(threads: int) -> NDArray[np.int64]:
    """Return a row of counters for each thread."""
    return np.zeros((threads, ROW), np.int64)


def read(rows: Iterable[NDArray[np.int64]], counts: Sequence[Count], whole: int = WHOLE) -> dict[str, float]:
    """Return seconds by name, averaged over the threads that counted any; `whole` is the offset of their total.

    Empty if no thread counted.
    """
    found = [_seconds(row.tolist(), counts, whole) for row in rows if row[WHOLE:].any()]
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]} if found else {}


def clear(rows: Iterable[NDArray[np.int64]]) -> None:
    """Reset the rows to zero."""
    for row in rows:
        row[:] = 0


def _seconds(row: list[int], counts: Sequence[Count], whole: int) -> dict[str, float]:
    spent = [float(row[place]) for _, place, _ in counts]
    rest = row[whole] - sum(ns for ns, count in zip(spent, counts, strict=True) if count.kind == ALWAYS)
    for number, (_, place, kind) in enumerate(counts):
        if kind != ALWAYS:
            seen, timed, empty = row[kind : kind + 3]
            spent[number] = max(row[place] - empty, 0) * seen / max(timed, 1)
    estimated = sum(ns for ns, count in zip(spent, counts, strict=True) if count.kind != ALWAYS)
    scale = max(rest, 0) / estimated if estimated > 0 else 0.0
    seconds: dict[str, float] = {}
    for ns, (name, _, kind) in zip(spent, counts, strict=True):
        seconds[name] = seconds.get(name, 0.0) + (ns if kind == ALWAYS else ns * scale) * 1e-9
    return seconds


class Meter:
    """Training time whose counters have not been read yet; `fold(seconds)` reads them and adds them to the phases.

    Until the phases contain `watched`, they are read at once, so that phases are available from the first iteration on.
    """

    def __init__(self, phases: Mapping[str, float], watched: str, fold: Callable[[float], None]) -> None:
        self._phases, self._watched, self._fold = phases, watched, fold
        self._pending, self._counting = 0.0, COUNTING

    def add(self, seconds: float) -> None:
        """Add the seconds just spent."""
        self._pending += seconds
        if self._pending >= PATIENCE or self._watched not in self._phases:
            self.fold()

    def fold(self) -> None:
        """Update the phases."""
        if self._counting and self._pending > 0:
            self._fold(self._pending)
        self._pending = 0.0
