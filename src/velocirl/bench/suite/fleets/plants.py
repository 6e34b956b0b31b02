"""Cost of controlling a plant step by step: a single step, a fleet's step, and a policy's decision."""

from __future__ import annotations

from functools import partial

import numpy as np

import velocirl
from velocirl.bench.comparison import Comparison, value
from velocirl.bench.measuring import Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import vector_steps
from velocirl.bench.suite.fleets.single import stepping
from velocirl.bench.units import SECONDS, STEPS

PLANT = "ChemicalReactor-v0"
COPIES = 4096
MOST_SECONDS = 10e-6  # of a decision
FEWEST_STEPS, FEWEST_NOISY_STEPS = 5e6, 2e6  # per second, on one core


@benchmark(category="environment")
def plant_step() -> Comparison:
    """One call of `step` of one ChemicalReactor-v0, as `make` gives it.

    With its five constraints, random actions, and resets at the ends of episodes, of 360 steps at most.
    """
    return Comparison(unit=SECONDS, contestants={"velocirl": lambda: stepping(velocirl.make(PLANT))})


@benchmark(category="vector")
def plant_fleet() -> Comparison:
    """ChemicalReactor-v0 through VectorEnv.step, 4096 copies on one core.

    Five constraints are judged in each step and their costs told, for each copy.
    """
    plain, noisy = "velocirl", "velocirl, sensor noise"
    return Comparison(
        unit=STEPS,
        contestants={
            plain: vector_steps(partial(velocirl.make_vec, PLANT, COPIES, threads=1)),
            noisy: vector_steps(
                partial(velocirl.make_vec, PLANT, COPIES, threads=1, params={"sensor_noise": 1.0}),
            ),
        },
        claims=(value(plain, at_least=FEWEST_STEPS), value(noisy, at_least=FEWEST_NOISY_STEPS)),
    )


def decision() -> Timed:
    """Time the deterministic action for one observation of the plant, with the preset's policy."""
    agent = velocirl.PPO(PLANT, seed=0)
    observation, _ = velocirl.make(PLANT).reset(seed=0)
    row = np.asarray(observation)
    return Timed(lambda: agent.predict(row, deterministic=True))


@benchmark(category="network")
def plant_decision() -> Comparison:
    """The action for one observation of ChemicalReactor-v0, MLP 64x64.

    Through `predict`, as a user calls it, with a NumPy array, on the CPU; observations are normalised first.
    """
    return Comparison(
        unit=SECONDS, contestants={"velocirl": decision}, claims=(value("velocirl", at_most=MOST_SECONDS),)
    )
