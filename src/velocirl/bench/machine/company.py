"""How much of the machine other programs took while something was measured."""

from __future__ import annotations

import contextlib
import os
import time

import psutil

NOTABLE = 0.25  # cores that others kept busy, from which on it is said
TOO_MUCH = 0.75  # cores, from which on nothing is concluded from becoming slower
ALONE = 0.1  # cores, below which nobody else was at work


class Company:
    """Counts the time of all processors from its making on, less that of this process and its children."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.perf_counter(), _busy(), _own()

    def cores(self) -> float:
        """The number of cores that others kept busy, on average; time that a hypervisor took counts as theirs."""
        elapsed = max(time.perf_counter() - self._began, 1e-3)
        return max(0.0, (_busy() - self._busy - (_own() - self._own)) / elapsed)


def _busy() -> float:
    """Seconds that all processors have worked since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # What guests took is counted among the user's time already.
    return sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)


def _own() -> float:
    """Seconds that this process and all of its children have worked."""
    ended = os.times()
    total = time.process_time() + ended.children_user + ended.children_system
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended, and is counted among those
            times = child.cpu_times()
            total += times.user + times.system
    return total
