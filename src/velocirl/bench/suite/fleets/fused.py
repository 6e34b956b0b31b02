"""Random steps in one compiled loop: an environment's cost without any Python between steps."""

from __future__ import annotations

import velocirl
from velocirl.bench.comparison import Comparison, value
from velocirl.bench.measuring import Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.units import STEPS
from velocirl.vector.native import FleetVectorEnv

COPIES, STEPS_PER_CALL = 4096, 256
PER_CORE = 60e6


@benchmark(category="environment")
def random_loop() -> Comparison:
    """CartPole-v1 with random actions in one compiled loop, 4096 copies."""
    return Comparison(
        unit=STEPS,
        contestants={"velocirl, 1 thread": lambda: _loop(1), "velocirl, 2 threads": lambda: _loop(2)},
        claims=(value("velocirl, 1 thread", at_least=PER_CORE), value("velocirl, 2 threads")),
    )


def _loop(threads: int) -> Timed:
    require_cores(threads)
    env = velocirl.make_vec("CartPole-v1", COPIES, seed=0, threads=threads)
    assert isinstance(env, FleetVectorEnv)  # noqa: S101 - for the type checker: a native environment is a fleet
    return Timed(lambda: env.run_randomly(STEPS_PER_CALL), amount=COPIES * STEPS_PER_CALL, closing=env.close)
