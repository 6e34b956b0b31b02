"""Background load: processor time that other programs used during a measurement."""

from __future__ import annotations

import contextlib
import os
import time

import psutil

from velocirl.monitor.resource_use import busy_seconds

NOTABLE = 0.25  # cores busy with other programs, from which a warning is shown
TOO_MUCH = 0.75  # cores, above which nothing is concluded
ALONE = 0.1  # cores, below which the machine counts as idle
WINDOW = 0.5  # seconds; processor time is counted in hundredths of a second, too coarse for a tenth


class Company:
    """Counts the time of all processors since its creation, minus the time of this process and its children."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.perf_counter(), busy_seconds(), _own()

    def cores(self) -> float:
        """Return the mean number of cores, among those this process may use, that other programs kept busy."""
        elapsed = max(time.perf_counter() - self._began, 1e-3)
        return max(0.0, (busy_seconds() - self._busy - (_own() - self._own)) / elapsed)


class CompanyByRound:
    """Counts the cores that other programs kept busy during each round of a measurement."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []  # wall-clock time, and other programs' processor seconds

    def mark(self) -> None:
        """Mark the beginning of the first round, or the end of a round."""
        self.marks.append((time.perf_counter(), busy_seconds() - _own()))

    def cores(self) -> tuple[float, ...]:
        """Return the busy cores of each round; short rounds are averaged over a window around them."""
        return tuple(self._around(end - 1, end) for end in range(1, len(self.marks)))

    def _around(self, first: int, last: int) -> float:
        last_of_all = len(self.marks) - 1
        while self.marks[last][0] - self.marks[first][0] < WINDOW and (first > 0 or last < last_of_all):
            first, last = max(first - 1, 0), min(last + 1, last_of_all)
        (began, before), (ended, after) = self.marks[first], self.marks[last]
        return max(0.0, (after - before) / max(ended - began, 1e-3))


def _own() -> float:
    """Return the processor seconds used by this process and all of its children."""
    ended = os.times()
    total = time.process_time() + ended.children_user + ended.children_system
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # just ended: counted with the ended children
            times = child.cpu_times()
            total += times.user + times.system
    return total
