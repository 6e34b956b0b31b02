"""Samplers shared by several benchmarks: steps of vector environments, and samples longer than usual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.machine.arithmetic import fleet_bytes
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Sampler, Settings, Timed
from velocirl.engine.targets.cpu import available_cores
from velocirl.vector.native import FleetVectorEnv

ACTION_ARRAYS = 16  # enough that no branch predictor memorizes them
LONGER_SECONDS = 0.3  # so that the minimum rounds of a thorough run are seconds of training


def vector_steps(make: Callable[[], VectorEnv]) -> Callable[[], Timed]:
    """Return a contestant that calls `VectorEnv.step` with actions sampled from the action space.

    The cost of a velocirl fleet is the traffic of its own arrays; the arrays copied by `step` to return are not
    counted.
    """

    def contestant() -> Timed:
        env = make()
        env.reset(seed=0)
        env.action_space.seed(0)
        timed = timed_steps(env, [env.action_space.sample() for _ in range(ACTION_ARRAYS)], env.num_envs)
        if isinstance(env, FleetVectorEnv):
            timed.cost = Cost(bytes=fleet_bytes(env.copies), cores=getattr(env.target, "threads", 1))
        return timed

    return contestant


def timed_steps(env: Any, actions: list[NDArray[Any]], num_envs: int) -> Timed:
    """Time `step` with these actions, in a cycle."""
    step, following = env.step, cycle(actions).__next__
    return Timed(lambda: step(following()), amount=num_envs, closing=env.close)


def require_cores(count: int) -> None:
    """Raise UnavailableError if this process may use fewer cores."""
    if available_cores() < count:
        raise UnavailableError(f"needs {count} cores, has {available_cores()}")


@dataclass
class Longer:
    """Sampler whose samples last longer than in other benchmarks."""

    sampler: Sampler

    @property
    def iterations(self) -> int:
        """Number of calls per sample."""
        return self.sampler.iterations

    @property
    def cost(self) -> Cost | None:
        """Minimum cost of one unit of its work."""
        return self.sampler.cost

    def prepare(self, settings: Settings) -> None:
        """Warm up for at least one sample's duration, and choose the number of calls."""
        seconds = max(settings.sample_seconds, LONGER_SECONDS)
        self.sampler.prepare(
            replace(settings, warm_up_seconds=max(settings.warm_up_seconds, seconds), sample_seconds=seconds)
        )

    def sample(self) -> float:
        """Take one sample."""
        return self.sampler.sample()

    def close(self) -> None:
        """Release the measured objects."""
        self.sampler.close()
