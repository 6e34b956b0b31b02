"""Limits of what episodes may cost: the settings that say them, and the numbers that an algorithm's functions read.

A limit is the mean cost of an episode, undiscounted, as OmniSafe and Safety-Gymnasium state theirs: with costs of 1 for
each step in violation, the steps that an episode may spend there on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from velocirl.engine.naming import nearest
from velocirl.training.settings.config import require, require_whole

USUAL_LIMIT = 25.0  # of Safety-Gymnasium's tasks
SUM = "cost"  # how the sum of all costs is called


@dataclass(frozen=True)
class LimitedConfig:
    """What an algorithm that keeps limits has beside the settings of its parent."""

    fixed: ClassVar[frozenset[str]] = frozenset({"cost_limit"})
    cost_limit: float | None = None
    """Mean cost of an episode, undiscounted and summed over all constraints, to stay below. 25 where no limit is
    given."""
    cost_limits: dict[str, float] | None = None
    """Mean cost of an episode to stay below for single constraints, each with a multiplier of its own:
    temperature=5 pressure=0."""

    def check_limits(self) -> None:
        """Refuse limits that are none, and two kinds of them at once."""
        both = self.cost_limit is not None and self.cost_limits is not None
        require(not both, "cost_limit", self.cost_limit, "left out where cost_limits is given")
        require(self.cost_limits != {}, "cost_limits", self.cost_limits, "of at least one constraint")
        for name, limit in {"cost_limit": self.cost_limit, **(self.cost_limits or {})}.items():
            place = name if name == "cost_limit" else f"cost_limits[{name!r}]"
            require(limit is None or 0 <= limit < inf, place, limit, "at least 0")

    @property
    def limited(self) -> tuple[str, ...]:
        """What has a limit: the sum of all costs, or constraints by name."""
        return (SUM,) if self.cost_limits is None else tuple(self.cost_limits)


@dataclass(frozen=True)
class ControlledConfig(LimitedConfig):
    """What an algorithm has whose multipliers follow the cost of episodes by PID control."""

    proportional_gain: float = 0.02
    """What a multiplier gains at once from episodes that cost twice their limit."""
    integral_gain: float = 0.01
    """What it gains for good each time that episodes have cost so much."""
    derivative_gain: float = 0.02
    """What it gains until the next time where their cost has grown by the limit."""
    largest_multiplier: float = 100.0
    """Upper limit of a multiplier and of its integral, which therefore does not wind up."""

    def check_control(self) -> None:
        """Refuse numbers that make no sense."""
        self.check_limits()
        for name in ("proportional_gain", "integral_gain", "derivative_gain"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")
        require(0 < self.largest_multiplier < inf, "largest_multiplier", self.largest_multiplier, "above 0")


@dataclass(frozen=True)
class CostCriticConfig(LimitedConfig):
    """What an algorithm has that knows costs by critics of them alone, as it learns from data and sees no episode."""

    fixed: ClassVar[frozenset[str]] = frozenset({"gamma"})  # costs of episodes are told by it
    multiplier_rate: float = 1e-3
    """What a multiplier gains in an update where episodes are expected to cost twice their limit."""
    largest_multiplier: float = 100.0
    """Upper limit of a multiplier."""
    episode_steps: int | None = None
    """Number of steps of an episode, for which limits hold. Without it, the time limit of the environment."""

    def check_cost_critics(self, gamma: float) -> None:
        """Refuse numbers that make no sense, and a discount by which an episode's cost cannot be told."""
        self.check_limits()
        require(gamma < 1, "gamma", gamma, "below 1")
        require(0 <= self.multiplier_rate < inf, "multiplier_rate", self.multiplier_rate, "at least 0")
        require(0 < self.largest_multiplier < inf, "largest_multiplier", self.largest_multiplier, "above 0")
        require_whole(self, 1, 2**31 - 1, "episode_steps")


def cost_critic_numbers(config: Any, constraints: tuple[str, ...], source: Any) -> dict[str, Any]:
    """The limits, where multipliers begin, and by how much cost values are to be multiplied.

    A cost value is discounted: in the long run, it is what a step costs over 1 - gamma.
    """
    steps = config.episode_steps or (None if source.native is None else source.native.max_steps)
    if steps is None:
        raise ValueError(
            f"a limit is the cost of an episode, and {source.id} does not say how long one is: give episode_steps="
        )
    limits = limit_numbers(config, constraints, source.id)
    return {**limits, "nothing_yet": 0.0, "steps_of_value": steps * (1.0 - config.gamma)}


def limit_numbers(config: LimitedConfig, constraints: tuple[str, ...], environment: str) -> dict[str, Any]:
    """`limits`, and what is `counted` for each: 1 or 0 for every constraint, one limit's after another's."""
    given = config.cost_limits
    if given is None:
        limit = USUAL_LIMIT if config.cost_limit is None else config.cost_limit
        return {"limits": (limit,), "counted": (1.0,) * len(constraints)}
    for name in given:
        if name not in constraints:
            raise ValueError(f"cost_limits: {environment} has no constraint {name!r}{nearest(name, constraints)}")
    counted = tuple(float(one == name) for name in given for one in constraints)
    return {"limits": tuple(given.values()), "counted": counted}


def limits_of(config: LimitedConfig) -> dict[str, float]:
    """The limits by the names under which the costs of episodes are reported."""
    if config.cost_limits is None:
        return {SUM: USUAL_LIMIT if config.cost_limit is None else config.cost_limit}
    return {f"{SUM}/{name}": limit for name, limit in config.cost_limits.items()}


# Scalar functions -----------------------------------------------------------------------------------------------------


def limited_cost(costs, k, settings):
    """What counts for limit k of the costs of all constraints."""
    total = 0.0
    for c in range(len(costs)):
        total += settings.counted[k * len(costs) + c] * costs[c]
    return total


def excess_of(cost, limit):
    """(cost - d) / max(d, 1), within +-1: a disaster early on counts as twice the limit does and no more."""
    return min(max((cost - limit) / max(limit, 1.0), -1.0), 1.0)


def follow_expected_cost(means, numbers, settings):
    """Move each by its limit: clip(multiplier + rate e, 0, largest),  e = excess of the expected cost over d."""
    for k in range(len(numbers.multiplier)):
        excess = excess_of(means.expected_cost[k], settings.limits[k])
        moved = numbers.multiplier[k] + settings.multiplier_rate * excess
        numbers.multiplier[k] = min(max(moved, 0.0), settings.largest_multiplier)


def add_limited_costs(costs, limited_costs, settings):
    """Of a copy's column in time: what the steps cost, for each limit."""
    for t in range(limited_costs.shape[0] - 1):
        for k in range(limited_costs.shape[1]):
            limited_costs[t, k] = limited_cost(costs[t], k, settings)
