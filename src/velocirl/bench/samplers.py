"""Samplers that step vector environments with actions prepared beforehand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.measuring import Timed
from velocirl.engine.cpu import available_cores

ACTION_ARRAYS = 16  # enough that no branch predictor learns them by heart


def vector_steps(make: Callable[[], VectorEnv]) -> Callable[[], Timed]:
    """A contestant that takes steps of a fleet through `VectorEnv.step`, with actions drawn from its action space."""

    def contestant() -> Timed:
        env = make()
        env.reset(seed=0)
        env.action_space.seed(0)
        return timed_steps(env, [env.action_space.sample() for _ in range(ACTION_ARRAYS)], env.num_envs)

    return contestant


def timed_steps(env: Any, actions: list[NDArray[Any]], num_envs: int) -> Timed:
    """Time `step` with these actions, over and over."""
    step, following = env.step, cycle(actions).__next__
    return Timed(lambda: step(following()), amount=num_envs, closing=env.close)


def require_cores(count: int) -> None:
    """Stop where this process may not use that many cores."""
    if available_cores() < count:
        raise UnavailableError(f"needs {count} cores, has {available_cores()}")
