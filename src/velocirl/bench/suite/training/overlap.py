"""Collecting while learning, compared with sequential execution: speedup, and effect on the return."""

from __future__ import annotations

import importlib.util
from functools import cache, partial
from itertools import cycle
from typing import Any

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, ratio
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.units import RETURN, STEPS

ENVIRONMENT = "gym:InvertedPendulum-v5"
TOGETHER, APART, BY_GAE = "overlapped, V-trace", "one after the other, V-trace", "one after the other, GAE"
MANNERS: dict[str, dict[str, Any]] = {
    TOGETHER: {"overlap": True, "estimator": "vtrace"},
    APART: {"overlap": False, "estimator": "vtrace"},
    BY_GAE: {"overlap": False, "estimator": "gae"},
}
SETTINGS: dict[str, Any] = {
    "num_envs": 8, "horizon": 64, "minibatch_size": 128, "epochs": 10, "learning_rate": 1e-3, "gae_lambda": 0.9,
    "entropy_coefficient": 0.0, "normalise_observations": True, "hidden": (128, 128), "shared": True, "threads": 2,
    "device": "cpu",
}  # fmt: skip
ITERATIONS = 8  # per sample
SEEDS = 3
TRAINING = 30_000  # steps before evaluation
EPISODES = 32  # per evaluation


def make_agent(manner: str, **given: Any) -> velocirl.PPO:
    """Create an agent for this variant."""
    require_cores(2)
    if importlib.util.find_spec("mujoco") is None:
        raise UnavailableError("mujoco is not installed")
    return velocirl.PPO(ENVIRONMENT, **{**SETTINGS, **MANNERS[manner], **given})


def training(manner: str) -> Timed:
    """Time training iterations, in steps per second."""
    agent = make_agent(manner, seed=0, learning_rate_schedule="constant")
    steps = ITERATIONS * agent.config.batch
    return Timed(lambda: agent.learn(steps), amount=steps)


def learnt(manner: str, steps: int = TRAINING) -> Counted:
    """Measure the mean return after `steps` steps of training, for one seed after another."""

    @cache  # deterministic per seed
    def mean_return(seed: int) -> float:
        agent = make_agent(manner, seed=seed).learn(steps)
        return velocirl.evaluate(agent, episodes=EPISODES, seed=seed).mean_return

    for seed in range(SEEDS):
        mean_return(seed)
    seeds = cycle(range(SEEDS))
    return Counted(lambda: mean_return(next(seeds)))


@benchmark(category="training", standard=False)
def overlap_speed() -> Comparison:
    """Training PPO on Gymnasium's InvertedPendulum-v5 (MuJoCo), collecting while learning and one after the other.

    8 copies x 64 steps, stepped by Python in this process; 10 epochs in minibatches of 128, a 128x128 tanh network that
    policy and value share, two cores. One after the other, both cores learn; overlapped, one learns while the other
    steps. V-trace values each rollout anew before each epoch, which GAE does not.
    """
    return Comparison(
        unit=STEPS,
        contestants={manner: partial(training, manner) for manner in MANNERS},
        claims=(ratio(TOGETHER, APART), ratio(TOGETHER, BY_GAE)),
    )


@benchmark(category="training", standard=False)
def overlap_returns() -> Comparison:
    """What PPO has learnt on Gymnasium's InvertedPendulum-v5 after 30,000 steps, collected while learning and not.

    The mean return of 32 episodes; 1000 is perfect. Of three seeds in turns, each trained once before the rounds.
    Overlapped, each rollout is by the policy of one update earlier.
    """
    return Comparison(
        unit=RETURN,
        contestants={manner: partial(learnt, manner) for manner in MANNERS},
        claims=(ratio(TOGETHER, APART), ratio(TOGETHER, BY_GAE)),
    )
