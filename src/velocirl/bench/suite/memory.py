"""The memory that a copy of an environment takes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, value
from velocirl.bench.measuring import Counted
from velocirl.bench.processes import run_python
from velocirl.bench.registry import benchmark
from velocirl.bench.units import BYTES
from velocirl.vector.native import FleetVectorEnv

MOST_BYTES = 256.0
STATISTICS = Path("/proc/self/statm")
# A small fleet comes first, so that compiled code and imports are there before the growth is taken.
RESIDENT_GROWTH = """
import gc, os, pathlib
import numpy, velocirl

def resident():
    gc.collect()
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def fleet(copies):
    env = velocirl.make_vec("CartPole-v1", copies)
    env.reset(seed=0)
    env.step(numpy.zeros(copies, numpy.int64))
    return env

small = fleet(16)
before = resident()
large = fleet(1_000_000)
print((resident() - before) / 1_000_000)
"""


@benchmark(category="memory")
def bytes_per_copy() -> Comparison:
    """Memory of one copy of CartPole-v1.

    The arrays of a fleet are counted exactly; as a cross-check, a fresh process makes, resets and steps a fleet of
    1,000,000 copies and tells how much its resident memory grew, Gymnasium's batched spaces included.
    """
    arrays, resident = "arrays of the fleet", "resident memory, 1,000,000 copies"
    return Comparison(
        unit=BYTES,
        contestants={arrays: lambda: Counted(_array_bytes), resident: _resident},
        claims=(value(arrays, at_most=MOST_BYTES), value(resident, at_most=MOST_BYTES)),
    )


def _array_bytes() -> float:
    env = velocirl.make_vec("CartPole-v1", 4096)
    assert isinstance(env, FleetVectorEnv)  # noqa: S101 - for the type checker: a native environment is a fleet
    return sum(array.nbytes for array in env.copies) / env.num_envs


def _resident() -> Counted:
    if not STATISTICS.exists():
        raise UnavailableError(f"needs {STATISTICS}, which only Linux has")
    home = Path(tempfile.mkdtemp(prefix="velocirl-bench-"))
    return Counted(lambda: float(run_python(RESIDENT_GROWTH, home)), closing=lambda: shutil.rmtree(home))
