"""Overhead of constraints per step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import velocirl
from velocirl.bench.comparison import Comparison, value
from velocirl.bench.measuring import Counted
from velocirl.bench.registry import benchmark
from velocirl.bench.units import PERCENT
from velocirl.engine import registry
from velocirl.engine.constraints import Constraint, constraining
from velocirl.vector.native import FleetVectorEnv

PLANT = "ChemicalReactor-v0"
COPIES, STEPS, TURNS = 4096, 16, 24
MOST = 10.0  # percent


@benchmark(category="environment")
def safety_overhead() -> Comparison:
    """Time that the five constraints of ChemicalReactor-v0 add to a step, 4096 copies on one core.

    Two fleets take turns, with constraints and without; of each the fastest of 24 turns counts, by the thread's own
    clock. None is critical here, so that both live through the same episodes. The compiled loop steps with random
    actions, and nothing else; `VectorEnv.step` also tells the costs of each copy.
    """
    loop, step = "compiled loop", "VectorEnv.step"
    return Comparison(
        unit=PERCENT,
        contestants={loop: lambda: _added(_random_steps), step: lambda: _added(_steps)},
        claims=(value(loop, at_most=MOST), value(step, at_most=MOST)),
    )


def _added(calls: Callable[[FleetVectorEnv], Callable[[], object]]) -> Counted:
    plant = registry.find(PLANT)
    kept: tuple[Constraint, ...] = tuple(replace(one, critical=False) for one in plant.constraints)
    fleets = [velocirl.make_vec(constraining(plant, some), COPIES, seed=0, threads=1) for some in ((), kept)]
    works = []
    for fleet in fleets:
        assert isinstance(fleet, FleetVectorEnv)  # noqa: S101 - for the type checker: a native environment is a fleet
        fleet.reset()
        works.append(calls(fleet))
        works[-1]()  # the first compiles

    def percent() -> float:
        fastest = [float("inf")] * 2
        for turn in range(TURNS):
            for one in (turn % 2, 1 - turn % 2):
                begun = time.thread_time()
                works[one]()
                fastest[one] = min(fastest[one], time.thread_time() - begun)
        return 100.0 * (fastest[1] / fastest[0] - 1.0)

    return Counted(percent, closing=lambda: [fleet.close() for fleet in fleets])


def _random_steps(fleet: FleetVectorEnv) -> Callable[[], object]:
    return lambda: fleet.run_randomly(STEPS)


def _steps(fleet: FleetVectorEnv) -> Callable[[], object]:
    actions = fleet.action_space.sample()

    def step() -> None:
        for _ in range(STEPS):
            fleet.step(actions)

    return step
