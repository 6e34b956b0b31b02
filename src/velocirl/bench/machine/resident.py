"""Resident memory of fresh processes, which tell what some code has added there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.measuring import Counted
from velocirl.bench.processes import run_python

STATISTICS, PEAK = Path("/proc/self/statm"), Path("/proc/self/clear_refs")
# Functions for the code: bytes that are resident, and the most since `forget_peak` was called.
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
    """The figures that code prints; it has the functions above."""
    for path in (STATISTICS, PEAK):
        if not path.exists():
            raise UnavailableError(f"needs {path}, which only Linux has")
    return [float(word) for word in run_python(FUNCTIONS + code).split()]


def told_once(code: str) -> Counted:
    """A process tells its figure; it stands in every round."""
    (figure,) = told(code)
    return Counted(lambda: figure)


def told_in_turns(code: str) -> Callable[[], Counted]:
    """A contestant whose process tells several figures; they stand in the rounds in turns."""

    def contestant() -> Counted:
        return Counted(cycle(told(code)).__next__)

    return contestant
