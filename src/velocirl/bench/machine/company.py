"""How much of the machine other programs took while something was measured."""

from __future__ import annotations

import contextlib
import os
import time

import psutil

from velocirl.monitor.resource_use import busy_seconds

NOTABLE = 0.25  # cores that others kept busy, from which on it is said
TOO_MUCH = 0.75  # cores, from which on nothing is concluded
ALONE = 0.1  # cores, below which nobody else was at work
WINDOW = 0.5  # seconds; processors count their time in hundredths of a second, which says little about a tenth


class Company:
    """Counts the time of all processors from its making on, less that of this process and its children."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.perf_counter(), busy_seconds(), _own()

    def cores(self) -> float:
        """The number of cores, of those this process may use, that others kept busy, on average."""
        elapsed = max(time.perf_counter() - self._began, 1e-3)
        return max(0.0, (busy_seconds() - self._busy - (_own() - self._own)) / elapsed)


class CompanyByRound:
    """Counts the cores that others kept busy during each round of a measurement."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []  # by the clock, and the seconds that others have worked

    def mark(self) -> None:
        """Note the beginning of the first round, or the end of one."""
        self.marks.append((time.perf_counter(), busy_seconds() - _own()))

    def cores(self) -> tuple[float, ...]:
        """The cores of each round, on average over a window around it where it was short."""
        return tuple(self._around(end - 1, end) for end in range(1, len(self.marks)))

    def _around(self, first: int, last: int) -> float:
        last_of_all = len(self.marks) - 1
        while self.marks[last][0] - self.marks[first][0] < WINDOW and (first > 0 or last < last_of_all):
            first, last = max(first - 1, 0), min(last + 1, last_of_all)
        (began, before), (ended, after) = self.marks[first], self.marks[last]
        return max(0.0, (after - before) / max(ended - began, 1e-3))


def _own() -> float:
    """Seconds that this process and all of its children have worked."""
    ended = os.times()
    total = time.process_time() + ended.children_user + ended.children_system
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended, and is counted among those
            times = child.cpu_times()
            total += times.user + times.system
    return total
