"""A toy: a critic of what steps cost, learnt from a memory, with a column for each constraint."""

from __future__ import annotations

from toys.soft_maximum import actor_gradient, new_action

from velocirl.networks import squashed
from velocirl.networks.declared import Columns, Groups, Network
from velocirl.networks.heads import Head
from velocirl.program.fields import Action, Costs
from velocirl.program.stages import backward, each, forward, step
from velocirl.training.off_policy import NoisyConfig, OffPolicyAgent


def policy(agent: CostCritic) -> Groups:
    return [[Columns(agent.head.outputs)]]


def a_column_for_each_constraint(agent: CostCritic) -> Groups:
    return [[Columns(len(agent.constraints))]]


def act(actor, row, rng):
    squashed.sample(actor, rng, row.action)


def cost_gradient(critic, row, gradient, metrics):
    """(C_k(s, a) - c_k)^2 / 2"""
    for k in range(len(row.costs)):
        gradient[k] = critic[k] - row.costs[k]
        metrics.cost += row.costs[k]
        metrics.loss += 0.5 * gradient[k] * gradient[k]


def descend(new_cost, gradient):
    for k in range(len(gradient)):
        gradient[k] = 1.0


class CostCritic(OffPolicyAgent):
    name = "toy-cost-critic"
    Config = NoisyConfig
    networks = {
        "actor": Network("observation", gives=policy),
        "critic": Network("observation", "action", gives=a_column_for_each_constraint, setting="critic"),
    }

    class Scratch:
        costs: Costs
        new_action: Action
        noise: Action

    act = act
    update = (
        forward("critic", "observation", "action"),
        each(cost_gradient),
        backward("critic"),
        step("critic"),
        forward("actor", "observation"),
        each(new_action),
        forward("critic", "observation", "new_action", name="new_cost"),
        each(descend),
        backward("new_cost", into="new_action"),
        each(actor_gradient),
        backward("actor"),
        step("actor"),
    )
    reports = {"cost": "cost", "loss": "loss"}

    def make_head(self) -> Head:
        return squashed.squashed_gaussian(self.check_numbers())
