"""Samplers that several benchmarks use: steps of vector environments, and longer samples than the usual ones."""

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

ACTION_ARRAYS = 16  # enough that no branch predictor learns them by heart
LONGER_SECONDS = 0.3  # so that the fewest rounds of a thorough run are seconds of training


def vector_steps(make: Callable[[], VectorEnv]) -> Callable[[], Timed]:
    """A contestant that takes steps of a fleet through `VectorEnv.step`, with actions drawn from its action space.

    The cost of a fleet of velocirl is the traffic of its own arrays; the copies that `step` returns are not counted.
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
    """Time `step` with these actions, over and over."""
    step, following = env.step, cycle(actions).__next__
    return Timed(lambda: step(following()), amount=num_envs, closing=env.close)


def require_cores(count: int) -> None:
    """Stop where this process may not use that many cores."""
    if available_cores() < count:
        raise UnavailableError(f"needs {count} cores, has {available_cores()}")


@dataclass
class Longer:
    """Takes samples that are longer than those of other benchmarks."""

    sampler: Sampler

    @property
    def iterations(self) -> int:
        """The number of calls in a sample."""
        return self.sampler.iterations

    @property
    def cost(self) -> Cost | None:
        """What a unit of its work needs at least."""
        return self.sampler.cost

    def prepare(self, settings: Settings) -> None:
        """Warm up for as long, and choose the number of calls."""
        seconds = max(settings.sample_seconds, LONGER_SECONDS)
        self.sampler.prepare(
            replace(settings, warm_up_seconds=max(settings.warm_up_seconds, seconds), sample_seconds=seconds)
        )

    def sample(self) -> float:
        """One sample."""
        return self.sampler.sample()

    def close(self) -> None:
        """Let go of what was measured."""
        self.sampler.close()
