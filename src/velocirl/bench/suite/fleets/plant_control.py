"""Cost of lookahead in a plant: a decision of model predictive control, and a step with a shield."""

from __future__ import annotations

import numpy as np

import velocirl
from velocirl.bench.comparison import Comparison, ratio, value
from velocirl.bench.measuring import Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.units import SECONDS
from velocirl.controllers import MPPI
from velocirl.safety import ShieldedVectorEnv

PLANT = "ChemicalReactor-v0"
SAMPLES, HORIZON = 1024, 20
COPIES, FORESIGHT, MARGIN = 1024, 40, {"runaway": 5.0}
REAL_TIME = 10e-3  # seconds


def mpc_decision() -> Timed:
    """Time one decision from the current state, warm-started with the previous plan."""
    envs = velocirl.make_vec(PLANT, 1, seed=0)
    observations, _ = envs.reset()
    controller = MPPI(samples=SAMPLES, horizon=HORIZON).bind(envs)
    _, plans = controller.predict(observations)
    return Timed(lambda: controller.predict(observations, plans))


def step(*, shielded: bool) -> Timed:
    """Time a step of all environments with random actions, with or without a shield."""
    envs = velocirl.make_vec(PLANT, COPIES, seed=0)
    if shielded:
        envs = ShieldedVectorEnv(envs, horizon=FORESIGHT, margin=MARGIN)
    envs.reset()
    envs.action_space.seed(0)
    actions = np.asarray(envs.action_space.sample())
    return Timed(lambda: envs.step(actions))


@benchmark(category="environment")
def plant_mpc() -> Comparison:
    """A decision of MPPI in ChemicalReactor-v0: 1024 trajectories of 20 steps, simulated by a fleet.

    From an observation to an action through `predict`, drawing the trajectories and judging them included.
    """
    return Comparison(unit=SECONDS, contestants={"MPPI": mpc_decision}, claims=(value("MPPI", at_most=REAL_TIME),))


@benchmark(category="environment", standard=False)
def plant_shield() -> Comparison:
    """A step of 1024 copies of ChemicalReactor-v0, with a shield that looks 40 steps ahead and without.

    Each copy keeps the action that it drew; the shipped PID is the fallback.
    """
    return Comparison(
        unit=SECONDS,
        contestants={"shielded": lambda: step(shielded=True), "plain": lambda: step(shielded=False)},
        claims=(ratio("plain", "shielded"),),
    )
