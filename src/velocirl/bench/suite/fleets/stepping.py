"""CartPole fleets through `VectorEnv.step`, compared with vectorized CartPoles of peer libraries."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

import velocirl
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.measuring import Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import ACTION_ARRAYS, require_cores, timed_steps, vector_steps
from velocirl.bench.units import STEPS

ENVIRONMENT = "CartPole-v1"


def gymnasium_fleet(num_envs: int) -> VectorEnv:
    """Create Gymnasium's array-based CartPole, its fastest."""
    return gymnasium.make_vec(ENVIRONMENT, num_envs=num_envs, vectorization_mode="vector_entry_point")


def two_threads(num_envs: int) -> VectorEnv:
    """Create a fleet with two threads."""
    require_cores(2)
    return velocirl.make_vec(ENVIRONMENT, num_envs, threads=2)


def envpool_steps(num_envs: int) -> Timed:
    """Time steps of EnvPool's CartPole; its interface is almost Gymnasium's."""
    import envpool  # pyright: ignore[reportMissingImports] - a peer, where installed

    with warnings.catch_warnings(action="ignore"):  # Gymnasium warns about its spaces
        env = envpool.make_gymnasium(ENVIRONMENT, num_envs=num_envs)
        env.reset()
    actions = np.random.default_rng(0).integers(0, env.action_space.n, (ACTION_ARRAYS, num_envs), np.int32)
    return timed_steps(env, list(actions), num_envs)


@benchmark(category="vector")
def cartpole_4096() -> Comparison:
    """CartPole-v1 through VectorEnv.step, 4096 copies.

    Gymnasium steps all copies at once on arrays. EnvPool chooses its threads by itself. velocirl also keeps final
    observations and episode statistics, which Gymnasium's does not. Of memory, what a step reads and writes of the
    fleet's own arrays counts; so few copies stay in a cache, which may move more than memory could.
    """
    return Comparison(
        unit=STEPS,
        contestants={
            "velocirl, 1 thread": vector_steps(lambda: velocirl.make_vec(ENVIRONMENT, 4096, threads=1)),
            "velocirl, 2 threads": vector_steps(lambda: two_threads(4096)),
            "Gymnasium, vectorised": vector_steps(lambda: gymnasium_fleet(4096)),
            "EnvPool": lambda: envpool_steps(4096),
        },
        claims=(
            ratio("velocirl, 1 thread", "Gymnasium, vectorised", at_least=3.0),
            ratio("velocirl, 2 threads", "Gymnasium, vectorised", at_least=5.0),
            ratio("velocirl, 1 thread", "EnvPool", at_least=40.0),
        ),
        peers=("Gymnasium, vectorised", "EnvPool"),
    )


@benchmark(category="vector")
def cartpole_64() -> Comparison:
    """CartPole-v1 through VectorEnv.step, 64 copies."""
    return Comparison(
        unit=STEPS,
        contestants={
            "velocirl": vector_steps(lambda: velocirl.make_vec(ENVIRONMENT, 64)),
            "Gymnasium, vectorised": vector_steps(lambda: gymnasium_fleet(64)),
        },
        claims=(ratio("velocirl", "Gymnasium, vectorised", at_least=5.0),),
        peers=("Gymnasium, vectorised",),
    )
