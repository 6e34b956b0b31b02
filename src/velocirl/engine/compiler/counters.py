"""Counters in compiled loops: how long each kind of work took, in a row of whole numbers for each thread.

A look at the clock costs about 25 ns, too much for work that takes a microsecond. So only one turn in so many is timed,
and the whole loop; what is read of turns is scaled up to the whole. The numbers are primes, so that they are in step
with nothing else. A timed turn begins with an empty lap, from which follows what a look itself costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.clock import now

# Part of what is compiled: without counting, loops are as if there were no counters (see tools/counter_overhead.py).
COUNTING = os.environ.get("VELOCIRL_COUNTERS", "1") != "0"
# The places of a row. On either side a line of the cache is left free, so that no two threads share one.
FIRST_KIND, SECOND_KIND = 8, 11  # of turns: seen, timed, and the nanoseconds of empty laps
TIMED, EMPTY = 1, 2  # after the first place of a kind
TIMING = 14  # whether the turn under way is timed, for functions that are called in it
WHOLE = 15  # nanoseconds of the whole loop; from here on they are such,
PLACES = 16  # and from here on as each loop names them
ROW = 40
PATIENCE = 0.2  # seconds whose counters are read together: a short iteration could not afford to
ALWAYS = 0  # the kind of what is timed whenever it happens, and needs no scaling


class Count(NamedTuple):
    """What a place of a row counts."""

    name: str  # several places may count towards one
    place: int
    kind: int  # of turns in which it is timed


def turn(counters, kind, every):
    """Take one more turn of a kind; whether it is one to be timed."""
    if not COUNTING:
        return False
    seen = counters[kind]
    counters[kind] = seen + 1
    if seen % every == 0:
        counters[kind + TIMED] += 1
        return True
    return False


def glance(timed):
    """The time, where that is of interest."""
    if COUNTING and timed:
        return now()
    return 0


def lap(counters, place, since, timed):
    """Count what has passed since a look at the clock; gives the next one."""
    if COUNTING and timed:
        moment = now()
        counters[place] += moment - since
        return moment
    return since


def start(counters, kind, timed):
    """The look with which a turn begins."""
    return lap(counters, kind + EMPTY, glance(timed), timed)


def allocate(threads: int) -> NDArray[np.int64]:
    """A row of counters for each thread."""
    return np.zeros((threads, ROW), np.int64)


def read(rows: Iterable[NDArray[np.int64]], counts: Sequence[Count], whole: int = WHOLE) -> dict[str, float]:
    """Seconds by name, the mean of the threads that counted any; `whole` is the place of what they add up to.

    Empty where nobody counted.
    """
    found = [_seconds(row.tolist(), counts, whole) for row in rows if row[WHOLE:].any()]
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]} if found else {}


def clear(rows: Iterable[NDArray[np.int64]]) -> None:
    """Let the rows begin anew."""
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
    """Seconds of training whose counters were not read yet; `fold(seconds)` reads them and adds them to the phases.

    As long as the phases have not what is `watched`, it does so at once: they are known from the first iteration on.
    """

    def __init__(self, phases: Mapping[str, float], watched: str, fold: Callable[[float], None]) -> None:
        self._phases, self._watched, self._fold = phases, watched, fold
        self._pending, self._counting = 0.0, COUNTING

    def add(self, seconds: float) -> None:
        """Take in seconds that were just spent."""
        self._pending += seconds
        if self._pending >= PATIENCE or self._watched not in self._phases:
            self.fold()

    def fold(self) -> None:
        """Bring the phases up to date."""
        if self._counting and self._pending > 0:
            self._fold(self._pending)
        self._pending = 0.0
