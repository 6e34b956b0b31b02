"""Gymnasium's own environments, vectorized by velocirl and by Gymnasium."""

from __future__ import annotations

import multiprocessing

import gymnasium
from gymnasium.vector import AutoresetMode

import velocirl
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import vector_steps
from velocirl.bench.units import STEPS

COPIES = 8


@benchmark(category="vector")
def host_cartpole() -> Comparison:
    """Gymnasium's CartPole-v1 in Python, 8 copies.

    The same environment runs on both sides; only what drives it differs. An episode that ends is followed by the next
    within the same step, on both sides. AsyncVectorEnv starts a process per copy.
    """
    methods = multiprocessing.get_all_start_methods()
    # No plain fork: it copies locks of other implementations' threads in an arbitrary state.
    start = {"context": "forkserver" if "forkserver" in methods else "spawn"}
    alike = {"autoreset_mode": AutoresetMode.SAME_STEP}
    return Comparison(
        unit=STEPS,
        contestants={
            "velocirl, serial": vector_steps(lambda: velocirl.make_vec("gym:CartPole-v1", COPIES)),
            "Gymnasium SyncVectorEnv": vector_steps(
                lambda: gymnasium.make_vec("CartPole-v1", COPIES, vectorization_mode="sync", vector_kwargs=alike)
            ),
            "velocirl, 2 workers": vector_steps(lambda: velocirl.make_vec("gym:CartPole-v1", COPIES, workers=2)),
            "Gymnasium AsyncVectorEnv": vector_steps(
                lambda: gymnasium.make_vec(
                    "CartPole-v1", COPIES, vectorization_mode="async", vector_kwargs={**start, **alike}
                )
            ),
        },
        claims=(
            ratio("velocirl, serial", "Gymnasium SyncVectorEnv"),
            ratio("velocirl, 2 workers", "Gymnasium AsyncVectorEnv"),
        ),
        peers=("Gymnasium SyncVectorEnv", "Gymnasium AsyncVectorEnv"),
    )
