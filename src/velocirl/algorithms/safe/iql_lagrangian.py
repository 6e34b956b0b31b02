"""IQL-Lagrangian: implicit Q-learning from data that clones what is better than usual and costs less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from velocirl.algorithms.offline.iql import IQL, IQLConfig, actor_gradient, critic_gradient, value_gradient
from velocirl.algorithms.safe.cql_lagrangian import cost_value_of_each_limit
from velocirl.algorithms.safe.sac_lagrangian import cost_critic_gradient
from velocirl.networks.declared import Network, Number, TargetNetwork
from velocirl.program.fields import Action, Costs
from velocirl.program.several import several
from velocirl.program.stages import backward, each, every, follow, forward, once, step
from velocirl.training.settings.limits import CostCriticConfig, cost_critic_numbers, follow_expected_cost


@dataclass(frozen=True)
class IQLLagrangianConfig(CostCriticConfig, IQLConfig):
    """The settings of IQL-Lagrangian: those of IQL, limits, and how multipliers follow them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_cost_critics(self.gamma)


def next_own_action(head, actor, row):
    """a' = pi(s'): cost targets follow the policy's action, not the data's."""
    head.mode(actor, row.next_mask, row.next_action)


def own_action(head, actor, row):
    """Compute pi(s), whose costs are compared with those of the data's action."""
    head.mode(actor, row.mask, row.own_action)


def pay(value, data_costs, own_costs, row, numbers, settings, metrics):
    """(Q(s, a) - V(s) - sum of multiplier_k (C_k(s, a) - C_k(s, pi(s)))) / (1 + sum of multipliers) + V(s)

    replaces Q(s, a). Also record the expected cost of an episode, steps (1 - gamma) C_k(s, pi(s)).
    """
    advantage, total = row.action_value - value[0], 1.0
    for k in range(len(numbers.multiplier)):
        advantage -= numbers.multiplier[k] * (data_costs[k] - own_costs[k])
        total += numbers.multiplier[k]
        metrics.expected_cost[k] += settings.steps_of_value * own_costs[k]
        metrics.multiplier[k] += numbers.multiplier[k]
    row.action_value = value[0] + advantage / total


class IQLLagrangian(IQL):
    """Implicit Q-learning that earns as much as limits of costs allow, from recorded data.

    Actions of the data count more that are better than usual and cost less than those of the policy.
    `IQLLagrangian("ChemicalReactor-v0", data="reactor.vds", cost_limits={"temperature": 5.0})`.
    """

    name = "iql-lagrangian"
    Config = IQLLagrangianConfig
    networks = {
        **IQL.networks,
        "cost_critics": Network("observation", "action", gives=cost_value_of_each_limit, setting="critic"),
        "target_cost_critics": TargetNetwork("cost_critics"),
        "multiplier": Number("nothing_yet", each="limited"),
    }

    class Scratch(IQL.Scratch):
        """Fields of a transition, stored and added by an update, in addition to those of IQL."""

        costs: Costs  # of the transition's step, per constraint
        next_action: Action
        own_action: Action

    update = (
        forward("target_critics", "observation", "action"),
        forward("value", "observation"),
        each(value_gradient),
        backward("value"),
        forward("actor", "next_observation"),
        each(next_own_action),
        forward("target_cost_critics", "next_observation", "next_action"),
        forward("cost_critics", "observation", "action"),
        each(cost_critic_gradient),
        backward("cost_critics"),
        step("value"),
        step("cost_critics"),
        forward("actor", "observation"),
        each(own_action),
        forward("cost_critics", "observation", "own_action", name="own_costs"),
        forward("cost_critics", "observation", "action", name="data_costs"),
        forward("value", "observation"),
        each(pay),
        each(actor_gradient),
        backward("actor"),
        forward("value", "next_observation", name="next_value"),
        forward("critics", "observation", "action"),
        each(critic_gradient),
        backward("critics"),
        step("actor"),
        step("critics"),
        once(follow_expected_cost),
        every(
            "target_every",
            follow("target_critics", "critics", "tau"),
            follow("target_cost_critics", "cost_critics", "tau"),
        ),
    )
    reports = {
        **IQL.reports,
        "cost_critic_loss": "cost_critic_loss",
        "expected_cost": several("limited", "expected_cost"),
        "multiplier": several("limited", "multiplier"),
    }

    def numbers(self) -> dict[str, Any]:
        """Return the limits, the initial multipliers, and the factor from cost values to expected costs."""
        return cost_critic_numbers(self.config, self.constraints, self.source)
