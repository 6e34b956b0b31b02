"""Step speed of every built-in environment as a fleet."""

from __future__ import annotations

import gymnasium

import velocirl
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import vector_steps
from velocirl.bench.units import STEPS
from velocirl.engine import registry

COPIES, WITH_PICTURES = 4096, 64  # fewer environments for image observations, drawn row by row


@benchmark(category="environment")
def built_in_environments() -> Comparison:
    """Built-in environments through VectorEnv.step, 4096 copies (64 of those that draw pictures).

    Threads as velocirl chooses them; actions are drawn from the action space, whatever an action mask says. Gymnasium
    is beside those that it has in vectorised form. Of memory, what a step reads and writes of the fleet's own arrays
    counts.
    """
    ids = [one for one in velocirl.list_envs() if registry.find(one).source.startswith(f"{registry.BUILT_IN}.")]
    vectorised = [one for one in ids if one in gymnasium.registry and gymnasium.registry[one].vector_entry_point]
    contestants = {one: vector_steps(lambda one=one: velocirl.make_vec(one, copies_of(one))) for one in ids}
    for one in vectorised:
        contestants[f"Gymnasium's {one}"] = vector_steps(
            lambda one=one: gymnasium.make_vec(one, num_envs=COPIES, vectorization_mode="vector_entry_point")
        )
    peers = {one: f"Gymnasium's {one}" for one in vectorised}
    return Comparison(STEPS, contestants, [ratio(*pair) for pair in peers.items()], tuple(peers.values()))


def copies_of(name: str) -> int:
    """Return the number of environments of a fleet."""
    return COPIES if registry.find(name).observe_row is None else WITH_PICTURES
