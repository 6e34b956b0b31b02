"""Cost limits of episodes: their settings, and the numbers that an algorithm's functions read.

A limit is the mean cost of an episode, undiscounted, as in OmniSafe and Safety-Gymnasium. With costs of 1 for each step
in violation, it is the mean number of violating steps that an episode may have.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from velocirl.engine.naming import nearest
from velocirl.training.settings.config import require, require_whole

USUAL_LIMIT = 25.0  # default of Safety-Gymnasium's tasks
SUM = "cost"  # name of the sum of all costs


@dataclass(frozen=True)
class LimitedConfig:
    """Additional settings of algorithms that satisfy cost limits."""

    fixed: ClassVar[frozenset[str]] = frozenset({"cost_limit"})
    cost_limit: float | None = None
    """Mean cost of an episode, undiscounted and summed over all constraints, to stay below. 25 where no limit is
    given."""
    cost_limits: dict[str, float] | None = None
    """Mean cost of an episode to stay below for single constraints, each with a multiplier of its own:
    temperature=5 pressure=0."""

    def check_limits(self) -> None:
        """Raise for invalid limits, and for limits of both kinds at once."""
        both = self.cost_limit is not None and self.cost_limits is not None
        require(not both, "cost_limit", self.cost_limit, "left out where cost_limits is given")
        require(self.cost_limits != {}, "cost_limits", self.cost_limits, "of at least one constraint")
        for name, limit in {"cost_limit": self.cost_limit, **(self.cost_limits or {})}.items():
            place = name if name == "cost_limit" else f"cost_limits[{name!r}]"
            require(limit is None or 0 <= limit < inf, place, limit, "at least 0")

    @property
    def limited(self) -> tuple[str, ...]:
        """Names of limited costs: the sum of all costs, or single constraints."""
        return (SUM,) if self.cost_limits is None else tuple(self.cost_limits)


@dataclass(frozen=True)
class ControlledConfig(LimitedConfig):
    """Additional settings of algorithms whose multipliers follow episode costs by PID control."""

    proportional_gain: float = 0.02
    """What a multiplier gains at once from episodes that cost twice their limit."""
    integral_gain: float = 0.01
    """What it gains for good each time that episodes have cost so much."""
    derivative_gain: float = 0.02
    """What it gains until the next time where their cost has grown by the limit."""
    largest_multiplier: float = 100.0
    """Upper limit of a multiplier and of its integral, which therefore does not wind up."""

    def check_control(self) -> None:
        """Raise for invalid limits, gains and multipliers."""
        self.check_limits()
        for name in ("proportional_gain", "integral_gain", "derivative_gain"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")
        require(0 < self.largest_multiplier < inf, "largest_multiplier", self.largest_multiplier, "above 0")


@dataclass(frozen=True)
class CostCriticConfig(LimitedConfig):
    """Additional settings of algorithms that estimate costs only with critics: offline ones, which see no episode."""

    fixed: ClassVar[frozenset[str]] = frozenset({"gamma"})  # episode costs are computed from it
    multiplier_rate: float = 1e-3
    """What a multiplier gains in an update where episodes are expected to cost twice their limit."""
    largest_multiplier: float = 100.0
    """Upper limit of a multiplier."""
    episode_steps: int | None = None
    """Number of steps of an episode, for which limits hold. Without it, the time limit of the environment."""

    def check_cost_critics(self, gamma: float) -> None:
        """Raise for invalid limits, rates and multipliers, and for a discount factor that gives no episode cost."""
        self.check_limits()
        require(gamma < 1, "gamma", gamma, "below 1")
        require(0 <= self.multiplier_rate < inf, "multiplier_rate", self.multiplier_rate, "at least 0")
        require(0 < self.largest_multiplier < inf, "largest_multiplier", self.largest_multiplier, "above 0")
        require_whole(self, 1, 2**31 - 1, "episode_steps")


def cost_critic_numbers(config: Any, constraints: tuple[str, ...], source: Any) -> dict[str, Any]:
    """Return the limits, the initial multipliers, and the factor from cost values to episode costs.

    A cost value is discounted: in the long run, it is a step's cost divided by 1 - gamma.
    """
    steps = config.episode_steps or (None if source.native is None else source.native.max_steps)
    if steps is None:
        raise ValueError(
            f"a limit is the cost of an episode, and {source.id} does not say how long one is: give episode_steps="
        )
    limits = limit_numbers(config, constraints, source.id)
    return {**limits, "nothing_yet": 0.0, "steps_of_value": steps * (1.0 - config.gamma)}


def limit_numbers(config: LimitedConfig, constraints: tuple[str, ...], environment: str) -> dict[str, Any]:
    """Return `limits`, and the constraints `counted` for each: 1 or 0 per constraint, limit by limit."""
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
    """Return the limits, by the names under which episode costs are reported."""
    if config.cost_limits is None:
        return {SUM: USUAL_LIMIT if config.cost_limit is None else config.cost_limit}
    return {f"{SUM}/{name}": limit for name, limit in config.cost_limits.items()}


# Scalar functions -----------------------------------------------------------------------------------------------------


def limited_cost(costs, k, settings):
    """Sum the constraint costs covered by limit k."""
    total = 0.0
    for c in range(len(costs)):
        total += settings.counted[k * len(costs) + c] * costs[c]
    return total


def excess_of(cost, limit):
    """(cost - d) / max(d, 1), clipped to +-1: an early disaster counts as twice the limit and no more."""
    return min(max((cost - limit) / max(limit, 1.0), -1.0), 1.0)


def follow_expected_cost(means, numbers, settings):
    """Update each multiplier: clip(multiplier + rate e, 0, largest),  e = excess of the expected cost over d."""
    for k in range(len(numbers.multiplier)):
        excess = excess_of(means.expected_cost[k], settings.limits[k])
        moved = numbers.multiplier[k] + settings.multiplier_rate * excess
        numbers.multiplier[k] = min(max(moved, 0.0), settings.largest_multiplier)


def add_limited_costs(costs, limited_costs, settings):
    """Compute each step's cost for each limit, over one environment's column in time."""
    for t in range(limited_costs.shape[0] - 1):
        for k in range(limited_costs.shape[1]):
            limited_costs[t, k] = limited_cost(costs[t], k, settings)
