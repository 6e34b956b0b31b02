"""CQL-Lagrangian: conservative Q-learning from data that pays for costs, as SAC-Lagrangian does from steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from velocirl.algorithms.offline.cql import (
    CQL,
    CQLConfig,
    conservative_gradient,
    critic_gradient,
    draw_own,
    draw_random_and_next,
)  # fmt: skip
from velocirl.algorithms.online.sac import sample_next_action, temperature_gradient, value_slope
from velocirl.algorithms.safe.sac_lagrangian import actor_gradient, cost_critic_gradient, sample_action
from velocirl.networks.declared import Columns, Groups, Network, Number, TargetNetwork
from velocirl.program.fields import Action, Costs
from velocirl.program.several import several
from velocirl.program.stages import backward, each, every, follow, forward, once, step, when
from velocirl.training.settings.limits import CostCriticConfig, cost_critic_numbers, follow_expected_cost


@dataclass(frozen=True)
class CQLLagrangianConfig(CostCriticConfig, CQLConfig):
    """The settings of CQL-Lagrangian: those of CQL, limits, and how multipliers follow them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_cost_critics(self.gamma)


def cost_value_of_each_limit(agent: Any) -> Groups:
    """Declare one cost critic per limit, each a separate network."""
    return [[Columns(1)] for _ in agent.config.limited]


def cost_slope(cost_critics, numbers, settings, gradient, metrics):
    """d(sum of multiplier_k C_k)/dC_k; also record the expected cost of an episode, steps (1 - gamma) C_k

    C_k is discounted: in the long run, it is the cost per step divided by 1 - gamma.
    """
    for k in range(len(gradient)):
        gradient[k] = numbers.multiplier[k]
        metrics.expected_cost[k] += settings.steps_of_value * cost_critics[k]
        metrics.actor_loss += numbers.multiplier[k] * cost_critics[k]
        metrics.multiplier[k] += numbers.multiplier[k]


class CQLLagrangian(CQL):
    """Conservative Q-learning that earns as much as limits of costs allow, from recorded data.

    What an episode of the policy would cost follows from critics of costs, whose values are discounted.
    `CQLLagrangian("ChemicalReactor-v0", data="reactor.vds", cost_limits={"temperature": 5.0})`.
    """

    name = "cql-lagrangian"
    Config = CQLLagrangianConfig
    networks = {
        **CQL.networks,
        "cost_critics": Network("observation", "action", gives=cost_value_of_each_limit, setting="critic"),
        "target_cost_critics": TargetNetwork("cost_critics"),
        "multiplier": Number("nothing_yet", each="limited"),
    }

    class Scratch(CQL.Scratch):
        """Fields of a transition, stored and added by an update, in addition to those of CQL."""

        costs: Costs  # of the transition's step, per constraint
        paid_action: Action  # copy of the new action, input of the cost critics
        slope: Action  # d(loss)/d(new action), over all critics

    update = (
        forward("actor", "next_observation"),
        each(sample_next_action),
        each(draw_random_and_next),
        forward("actor", "observation"),
        each(draw_own),
        forward("target_critics", "next_observation", "next_action"),
        forward("critics", "observation", "action"),
        each(critic_gradient),
        backward("critics"),
        forward("critics", "observation", "candidates", name="candidate_values", rows="tried"),
        each(conservative_gradient),
        backward("candidate_values"),
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
            once(follow_expected_cost),
        ),
        every(
            "target_every",
            follow("target_critics", "critics", "tau"),
            follow("target_cost_critics", "cost_critics", "tau"),
        ),
    )
    reports = {
        **CQL.reports,
        "cost_critic_loss": "cost_critic_loss",
        "expected_cost": several("limited", "expected_cost"),
        "multiplier": several("limited", "multiplier"),
    }

    def numbers(self) -> dict[str, Any]:
        """Return the limits, the initial multipliers, and the factor from cost values to expected costs."""
        return {**super().numbers(), **cost_critic_numbers(self.config, self.constraints, self.source)}
