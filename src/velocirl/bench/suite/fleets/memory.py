"""Memory per environment."""

from __future__ import annotations

import velocirl
from velocirl.bench.comparison import Comparison, value
from velocirl.bench.machine.resident import told_once
from velocirl.bench.measuring import Counted
from velocirl.bench.registry import benchmark
from velocirl.bench.units import BYTES
from velocirl.engine.fleets.lifecycle import bytes_of
from velocirl.vector.native import FleetVectorEnv

MOST_BYTES = 256.0
# A small fleet comes first, so that compiled code and imports are loaded before growth is measured.
RESIDENT_GROWTH = """
import numpy, velocirl

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
    1,000,000 copies and tells once how much its resident memory grew, Gymnasium's batched spaces included.
    """
    arrays, process = "arrays of the fleet", "resident memory, 1,000,000 copies"
    return Comparison(
        unit=BYTES,
        contestants={arrays: lambda: Counted(_array_bytes), process: lambda: told_once(RESIDENT_GROWTH)},
        claims=(value(arrays, at_most=MOST_BYTES), value(process, at_most=MOST_BYTES)),
    )


def _array_bytes() -> float:
    env = velocirl.make_vec("CartPole-v1", 4096)
    assert isinstance(env, FleetVectorEnv)  # noqa: S101 - for the type checker: a native environment is a fleet
    return bytes_of(env.copies) / env.num_envs
