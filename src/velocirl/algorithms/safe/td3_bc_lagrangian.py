"""TD3+BC-Lagrangian: TD3+BC from data that pays for costs, by critics of them and multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from velocirl.algorithms.offline import td3_bc
from velocirl.algorithms.offline.td3_bc import TD3BC, TD3BCConfig, value_slope
from velocirl.algorithms.online import td3
from velocirl.algorithms.online.td3 import critic_gradient, smooth_next_action
from velocirl.algorithms.safe.cql_lagrangian import cost_value_of_each_limit
from velocirl.algorithms.safe.sac_lagrangian import cost_critic_gradient
from velocirl.engine.records import float32
from velocirl.networks.declared import Network, Number, TargetNetwork
from velocirl.program.fields import Action, Costs
from velocirl.program.several import several
from velocirl.program.stages import backward, each, every, follow, forward, mean, once, step
from velocirl.training.settings.limits import CostCriticConfig, cost_critic_numbers, follow_expected_cost


@dataclass(frozen=True)
class TD3BCLagrangianConfig(CostCriticConfig, TD3BCConfig):
    """The settings of TD3+BC-Lagrangian: those of TD3+BC, limits, and how multipliers follow them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_cost_critics(self.gamma)


def own_action(actor, row):
    """Compute pi(s) for the actor's loss, with a copy for the cost critics."""
    td3.own_action(actor, row)
    for k in range(len(row.new_action)):
        row.paid_action[k] = row.new_action[k]


def cost_slope(cost_critics, row, numbers, settings, gradient, metrics):
    """d(sum of multiplier_k C_k)/dC_k; also record the expected cost of an episode, steps (1 - gamma) C_k"""
    row.paid = 0.0
    for k in range(len(gradient)):
        gradient[k] = numbers.multiplier[k]
        row.paid += numbers.multiplier[k] * cost_critics[k]
        metrics.expected_cost[k] += settings.steps_of_value * cost_critics[k]
        metrics.multiplier[k] += numbers.multiplier[k]


def keep_slope(row, new_action_slope, paid_action_slope, numbers):
    """d(-U)/d(action) and U,  U = (Q_1(s, pi(s)) - sum of multiplier_k C_k(s, pi(s))) / (1 + sum of multipliers)"""
    total = 1.0
    for k in range(len(numbers.multiplier)):
        total += numbers.multiplier[k]
    row.value = (row.value - row.paid) / total
    for k in range(len(row.slope)):
        row.slope[k] = (new_action_slope[k] + paid_action_slope[k]) / total


class TD3BCLagrangian(TD3BC):
    """TD3+BC that earns as much as limits of costs allow, from recorded data.

    actor's loss = -lambda (Q_1 - sum of multiplier_k C_k) / (1 + sum of multipliers) + |pi(s) - a|^2.
    `TD3BCLagrangian("ChemicalReactor-v0", data="reactor.vds", cost_limits={"temperature": 5.0})`.
    """

    name = "td3-bc-lagrangian"
    Config = TD3BCLagrangianConfig
    networks = {
        **TD3BC.networks,
        "cost_critics": Network("observation", "action", gives=cost_value_of_each_limit, setting="critic"),
        "target_cost_critics": TargetNetwork("cost_critics"),
        "multiplier": Number("nothing_yet", each="limited"),
    }

    class Scratch(TD3BC.Scratch):
        """Fields of a transition, stored and added by an update, in addition to those of TD3+BC."""

        costs: Costs  # of the transition's step, per constraint
        paid_action: Action  # copy of the new action, input of the cost critics
        paid: float32  # its penalty: the sum of multiplier_k C_k

    update = (
        forward("target_actor", "next_observation"),
        each(smooth_next_action),
        forward("target_critics", "next_observation", "next_action"),
        forward("critics", "observation", "action"),
        each(critic_gradient),
        backward("critics"),
        forward("target_cost_critics", "next_observation", "next_action"),
        forward("cost_critics", "observation", "action"),
        each(cost_critic_gradient),
        backward("cost_critics"),
        step("critics"),
        step("cost_critics"),
        every(
            "actor_every",
            forward("actor", "observation"),
            each(own_action),
            forward("critics", "observation", "new_action"),
            each(value_slope),
            backward("critics", into="new_action"),
            forward("cost_critics", "observation", "paid_action"),
            each(cost_slope),
            backward("cost_critics", into="paid_action"),
            mean(keep_slope),
            each(td3_bc.actor_gradient),
            backward("actor"),
            step("actor"),
            once(follow_expected_cost),
        ),
        every(
            "target_every",
            follow("target_critics", "critics", "tau"),
            follow("target_cost_critics", "cost_critics", "tau"),
            follow("target_actor", "actor", "tau"),
        ),
    )
    reports = {
        **TD3BC.reports,
        "cost_critic_loss": "cost_critic_loss",
        "expected_cost": several("limited", "expected_cost"),
        "multiplier": several("limited", "multiplier"),
    }

    def numbers(self) -> dict[str, Any]:
        """Return the limits, the initial multipliers, and the factor from cost values to expected costs."""
        return cost_critic_numbers(self.config, self.constraints, self.source)
