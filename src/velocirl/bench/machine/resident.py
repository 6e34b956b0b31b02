"""Resident memory of fresh processes, to measure the memory that a piece of code adds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.measuring import Counted
from velocirl.bench.processes import run_python

STATISTICS, PEAK = Path("/proc/self/statm"), Path("/proc/self/clear_refs")
# Functions for the measured code: resident bytes, and their peak since `forget_peak` was called.
FUNCTIONS = """
import gc, os, pathlib

def resident():
    gc.collect()
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def forget_peak():
    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5")

def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
"""


def told(code: str) -> list[float]:
    """Run code in a fresh process and return the numbers it prints; the functions above are available to it."""
    for path in (STATISTICS, PEAK):
        if not path.exists():
            raise UnavailableError(f"needs {path}, which only Linux has")
    return [float(word) for word in run_python(FUNCTIONS + code).split()]


def told_once(code: str) -> Counted:
    """Measure one number in a process, once; it is the sample of every round."""
    (figure,) = told(code)
    return Counted(lambda: figure)


def told_in_turns(code: str) -> Callable[[], Counted]:
    """Return a contestant whose process prints several numbers; the rounds use them in turn."""

    def contestant() -> Counted:
        return Counted(cycle(told(code)).__next__)

    return contestant
