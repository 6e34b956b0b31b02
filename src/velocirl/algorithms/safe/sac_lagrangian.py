"""SAC-Lagrangian: soft actor-critic that pays for costs (Ha et al., 2020), learnt from memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from velocirl.algorithms.online import sac
from velocirl.algorithms.online.sac import (
    SAC,
    SACConfig,
    critic_gradient,
    mean_and_deviation,
    sample_next_action,
    temperature_gradient,
    two_values,
    value_slope,
)  # fmt: skip
from velocirl.learners.fields import Action, Costs
from velocirl.learners.several import several
from velocirl.learners.stages import backward, each, every, follow, forward, once, step, when
from velocirl.networks.declared import Columns, Groups, Network, Number, TargetNetwork
from velocirl.training.settings.config import require
from velocirl.training.settings.limits import CostCriticConfig, cost_critic_numbers, excess_of, limited_cost


@dataclass(frozen=True)
class SACLagrangianConfig(CostCriticConfig, SACConfig):
    """The settings of SAC-Lagrangian: those of SAC, limits, and how multipliers follow them."""

    proportional_gain: float = 0.0
    """What a multiplier gains while episodes are expected to cost twice their limit, beside what `multiplier_rate`
    has added up. It damps what a sum alone does: to overshoot, and to come back late."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_cost_critics(self.gamma)
        require(0 <= self.proportional_gain < inf, "proportional_gain", self.proportional_gain, "at least 0")


def cost_value_of_each_limit(agent: SACLagrangian) -> Groups:
    """A critic of the cost of each limit, each a network of its own."""
    return [[Columns(1)] for _ in agent.config.limited]


def cost_critic_gradient(cost_critics, target_cost_critics, row, settings, gradient, metrics):
    """(C_k(s, a) - y_k)^2 / 2,  y_k = c_k + discount C_k'(s', a')"""
    for k in range(len(gradient)):
        target = limited_cost(row.costs, k, settings)
        if row.discount > 0.0:  # what follows a terminal state does not exist
            target += row.discount * target_cost_critics[k]
        error = cost_critics[k] - target
        gradient[k] = row.weight * error
        metrics.cost_critic_loss += row.weight * 0.5 * error * error


def sample_action(actor, row, rng):
    """A new action for the actor to be judged by; critics of costs see the same one."""
    sac.sample_action(actor, row, rng)
    for k in range(len(row.new_action)):
        row.paid_action[k] = row.new_action[k]


def cost_slope(cost_critics, numbers, settings, gradient, metrics):
    """d(sum of multiplier_k C_k)/dC_k; and what an episode is expected to cost, steps (1 - gamma) C_k

    C_k is discounted: in the long run, it is what a step costs over 1 - gamma.
    """
    for k in range(len(gradient)):
        gradient[k] = numbers.multiplier[k]
        metrics.expected_cost[k] += settings.steps_of_value * cost_critics[k]
        metrics.actor_loss += numbers.multiplier[k] * cost_critics[k]
        metrics.multiplier[k] += numbers.multiplier[k]


def actor_gradient(actor, row, new_action_slope, paid_action_slope, numbers, settings, gradient, metrics):
    """temperature log pi(a|s) - (min Q(s, a) - sum of multiplier_k C_k(s, a)) / (1 + sum of multipliers)"""
    total = 1.0
    for k in range(len(numbers.multiplier)):
        total += numbers.multiplier[k]
    for k in range(len(row.slope)):
        row.slope[k] = (new_action_slope[k] + paid_action_slope[k]) / total
    sac.actor_gradient(actor, row, row.slope, numbers, settings, gradient, metrics)


def move_multipliers(means, numbers, settings):
    """multiplier = clip(multiplier + rate e, 0, largest),  e = excess of the expected cost over d"""
    for k in range(len(numbers.multiplier)):
        excess = excess_of(means.expected_cost[k], settings.limits[k])
        moved = numbers.multiplier[k] + settings.multiplier_rate * excess
        numbers.multiplier[k] = min(max(moved, 0.0), settings.largest_multiplier)


def control_multipliers(means, numbers, settings):
    """I = clip(I + rate e, 0, largest),  multiplier = clip(K_p e + I, 0, largest),  e as above"""
    for k in range(len(numbers.multiplier)):
        excess, most = excess_of(means.expected_cost[k], settings.limits[k]), settings.largest_multiplier
        integral = min(max(numbers.integral[k] + settings.multiplier_rate * excess, 0.0), most)
        numbers.multiplier[k] = min(max(settings.proportional_gain * excess + integral, 0.0), most)
        numbers.integral[k] = integral


class SACLagrangian(SAC):
    """Soft actor-critic that earns as much as limits of costs allow: maximise J(reward) with J(cost k) <= limit k.

    What an episode costs follows from critics of costs, whose values are discounted: a limit holds for the mean cost of
    a step times the steps of an episode. `SACLagrangian("ChemicalReactor-v0", cost_limits={"temperature": 5.0})`.
    """

    name = "sac-lagrangian"
    Config = SACLagrangianConfig
    networks = {
        "actor": Network("observation", gives=mean_and_deviation),
        "critics": Network("observation", "action", gives=two_values, setting="critic"),
        "cost_critics": Network("observation", "action", gives=cost_value_of_each_limit, setting="critic"),
        "target_critics": TargetNetwork("critics"),
        "target_cost_critics": TargetNetwork("cost_critics"),
        "log_temperature": Number("initial_log_temperature"),
        "multiplier": Number("nothing_yet", each="limited"),
        "integral": Number("nothing_yet", each="limited"),
    }

    class Scratch(SAC.Scratch):
        """What is kept with a transition and what an update adds to it, beside what SAC does."""

        costs: Costs  # of its steps, for each constraint
        paid_action: Action  # the new action, as critics of costs see it
        slope: Action  # d(loss)/d(new action), by all critics

    update = (
        forward("actor", "next_observation"),
        each(sample_next_action),
        forward("target_critics", "next_observation", "next_action"),
        forward("critics", "observation", "action"),
        each(critic_gradient),
        backward("critics"),
        step("critics"),
        forward("target_cost_critics", "next_observation", "next_action"),
        forward("cost_critics", "observation", "action"),
        each(cost_critic_gradient),
        backward("cost_critics"),
        step("cost_critics"),
        every(
            "actor_every",
            forward("actor", "observation"),
            each(sample_action),
            forward("critics", "observation", "new_action"),
            each(value_slope),
            backward("critics", into="new_action"),
            forward("cost_critics", "observation", "paid_action"),
            each(cost_slope),
            backward("cost_critics", into="paid_action"),
            each(actor_gradient),
            backward("actor"),
            step("actor"),
            when("learns_temperature", once(temperature_gradient, steps="log_temperature")),
            once(control_multipliers),
        ),
        every(
            "target_every",
            follow("target_critics", "critics", "tau"),
            follow("target_cost_critics", "cost_critics", "tau"),
        ),
    )
    reports = {
        **SAC.reports,
        "cost_critic_loss": "cost_critic_loss",
        "expected_cost": several("limited", "expected_cost"),
        "multiplier": several("limited", "multiplier"),
    }

    def numbers(self) -> dict[str, Any]:
        """The limits, where multipliers begin, and by how much cost values are to be multiplied."""
        return {**super().numbers(), **cost_critic_numbers(self.config, self.constraints, self.source)}
