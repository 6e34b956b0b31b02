"""Single environments: time per step, and memory of each built-in one."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import gymnasium

import velocirl
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.units import BYTES, SECONDS
from velocirl.engine import registry
from velocirl.engine.fleets.fleet import allocate
from velocirl.engine.fleets.lifecycle import bytes_of

ENVIRONMENT = "CartPole-v1"
ACTIONS = 64
COPIES = 64


def stepping(env: gymnasium.Env[Any, Any]) -> Timed:
    """Time steps of one environment, with resets at the ends of episodes."""
    env.reset(seed=0)
    env.action_space.seed(0)
    following = cycle([env.action_space.sample() for _ in range(ACTIONS)]).__next__

    def call() -> None:
        _, _, terminated, truncated, _ = env.step(following())
        if terminated or truncated:
            env.reset()

    return Timed(call, closing=env.close)


def array_bytes(environment: str) -> float:
    """Return the bytes of all fleet arrays per environment."""
    copies = allocate(registry.find(environment), COPIES, {})
    return bytes_of(copies) / COPIES


@benchmark(category="environment")
def single_step() -> Comparison:
    """One call of `step` of one CartPole-v1, as `make` gives it.

    Resets at the ends of episodes included, which a random policy reaches after about 22 steps.
    """
    ours, theirs = "velocirl", "Gymnasium"
    return Comparison(
        unit=SECONDS,
        contestants={
            ours: lambda: stepping(velocirl.make(ENVIRONMENT)),
            theirs: lambda: stepping(gymnasium.make(ENVIRONMENT)),
        },
        claims=(ratio(ours, theirs),),
        peers=(theirs,),
    )


@benchmark(category="environment")
def bytes_of_environments() -> Comparison:
    """Memory of one copy of each built-in environment.

    All arrays of a fleet: state, parameters, random stream, observations, masks and statistics.
    """
    ids = [one for one in velocirl.list_envs() if registry.find(one).source.startswith(f"{registry.BUILT_IN}.")]
    return Comparison(BYTES, {one: lambda one=one: Counted(lambda: array_bytes(one)) for one in ids})
