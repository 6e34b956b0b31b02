"""SAC-Lagrangian: soft actor-critic that pays for costs (Ha et al., 2020), learnt from memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

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
from velocirl.algorithms.safe.ppo_lagrangian import move_multipliers
from velocirl.networks.declared import Columns, Groups, Network, Number, TargetNetwork
from velocirl.program.fields import Action, Costs
from velocirl.program.several import several
from velocirl.program.stages import backward, each, every, follow, forward, once, step, when
from velocirl.training.settings.config import require, require_whole
from velocirl.training.settings.limits import ControlledConfig, limit_numbers, limited_cost
from velocirl.training.settings.words import Word, absent


@dataclass(frozen=True)
class SACLagrangianConfig(ControlledConfig, SACConfig):
    """The settings of SAC-Lagrangian: those of SAC, limits, and how multipliers follow them."""

    words: ClassVar[Mapping[str, Word]] = {
        **SACConfig.words,
        "multiplier_rate": absent(
            instead="multipliers follow the episodes that ended: give integral_gain=, and train anew what was saved"
        ),
    }
    proportional_gain: float = 0.5
    integral_gain: float = 0.05
    derivative_gain: float = 0.0
    multiplier_episodes: int = 16
    """Number of episodes that have to end before multipliers move by what these cost."""
    cost_critics: int = 2
    """Number of critics of each cost, of which the one counts that expects most."""

    def __post_init__(self) -> None:
        require(not self.overlap, "overlap", self.overlap, "off, as multipliers follow the episodes that ended")
        super().__post_init__()
        self.check_control()
        require_whole(self, 1, 2**20, "multiplier_episodes")
        require_whole(self, 1, 16, "cost_critics")


def critics_of_each_limit(agent: SACLagrangian) -> Groups:
    """Declare the cost critics, grouped by limit, each a separate network."""
    return [[Columns(1)] for _ in range(len(agent.config.limited) * agent.config.cost_critics)]


def highest(critics, k, settings):
    """Return the index of the critic with the highest estimate for limit k; all limits have equally many critics."""
    each = len(critics) // len(settings.limits)
    best = k * each
    for j in range(k * each + 1, (k + 1) * each):
        if critics[j] > critics[best]:
            best = j
    return best


def cost_critic_gradient(cost_critics, target_cost_critics, row, settings, gradient, metrics):
    """(C_kj(s, a) - y_k)^2 / 2,  y_k = c_k + discount max_j C_kj'(s', a'),  with C_kj the critics of limit k"""
    each = len(gradient) // len(settings.limits)
    for k in range(len(settings.limits)):
        target = limited_cost(row.costs, k, settings)
        if row.discount > 0.0:  # nothing follows a terminal state
            target += row.discount * target_cost_critics[highest(target_cost_critics, k, settings)]
        for j in range(k * each, (k + 1) * each):
            error = cost_critics[j] - target
            gradient[j] = row.weight * error
            metrics.cost_critic_loss += row.weight * 0.5 * error * error


def sample_action(actor, row, rng):
    """Sample a new action for the actor's loss, with a copy for the cost critics."""
    sac.sample_action(actor, row, rng)
    for k in range(len(row.new_action)):
        row.paid_action[k] = row.new_action[k]


def cost_slope(cost_critics, numbers, settings, gradient, metrics):
    """d(sum of multiplier_k max_j C_kj)/dC_kj: only the critic with the highest estimate contributes."""
    for j in range(len(gradient)):
        gradient[j] = 0.0
    for k in range(len(numbers.multiplier)):
        asked = highest(cost_critics, k, settings)
        gradient[asked] = numbers.multiplier[k]
        metrics.cost_value[k] += cost_critics[asked]
        metrics.actor_loss += numbers.multiplier[k] * cost_critics[asked]
        metrics.multiplier[k] += numbers.multiplier[k]


def actor_gradient(actor, row, new_action_slope, paid_action_slope, numbers, settings, gradient, metrics):
    """temperature log pi(a|s) - (min Q(s, a) - sum of multiplier_k C_k(s, a)) / (1 + sum of multipliers)"""
    total = 1.0
    for k in range(len(numbers.multiplier)):
        total += numbers.multiplier[k]
    for k in range(len(row.slope)):
        row.slope[k] = (new_action_slope[k] + paid_action_slope[k]) / total
    sac.actor_gradient(actor, row, row.slope, numbers, settings, gradient, metrics)


class SACLagrangian(SAC):
    """Soft actor-critic that earns as much as limits of costs allow: maximise J(reward) with J(cost k) <= limit k.

    What an action costs follows from critics of costs, and what a cost is to be paid with from the episodes that ended,
    as in PPO-Lagrangian. `SACLagrangian("ChemicalReactor-v0", cost_limits={"temperature": 5.0})`.
    """

    name = "sac-lagrangian"
    Config = SACLagrangianConfig
    networks = {
        "actor": Network("observation", gives=mean_and_deviation),
        "critics": Network("observation", "action", gives=two_values, setting="critic"),
        "cost_critics": Network("observation", "action", gives=critics_of_each_limit, setting="critic"),
        "target_critics": TargetNetwork("critics"),
        "target_cost_critics": TargetNetwork("cost_critics"),
        "log_temperature": Number("initial_log_temperature"),
        "multiplier": Number("nothing_yet", each="limited"),
        "integral": Number("nothing_yet", each="limited"),
        "excess": Number("nothing_yet", each="limited"),
    }

    class Scratch(SAC.Scratch):
        """Fields of a transition, stored and added by an update, in addition to those of SAC."""

        costs: Costs  # of the transition's steps, per constraint
        paid_action: Action  # copy of the new action, input of the cost critics
        slope: Action  # d(loss)/d(new action), over all critics

    decide = (every("multiplier_episodes", once(move_multipliers)),)
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
        "cost_value": several("limited", "cost_value"),
        "multiplier": several("limited", "multiplier"),
    }

    def numbers(self) -> dict[str, Any]:
        """Return the limits and the initial multipliers."""
        limits = limit_numbers(self.config, self.constraints, self.source.id)
        return {**super().numbers(), "nothing_yet": 0.0, **limits}
