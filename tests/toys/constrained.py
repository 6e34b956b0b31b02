"""A toy: a policy gradient with a value, and an advantage, for each constraint of the environment."""

from __future__ import annotations

from math import exp

from velocirl.buffers.returns import gae, gae_of_costs
from velocirl.engine.records import float32
from velocirl.networks.declared import Columns, Groups, Network
from velocirl.program.fields import Costs
from velocirl.program.stages import backward, column, each, forward, step
from velocirl.training.on_policy import OnPolicyAgent, OnPolicyConfig


def policy_and_values(agent: Constrained) -> Groups:
    head = agent.head
    policy = [Columns(head.outputs - head.numbers, 0.01)] if head.outputs > head.numbers else []
    return [[*policy, Columns(head.numbers, free=0.0)], [Columns(1), Columns(len(agent.constraints))]]


def act(head, policy, row, mask, rng):
    row.log_probability = head.sample(policy, mask, rng, row.action)
    row.value = policy[head.outputs]
    for k in range(len(row.cost_values)):
        row.cost_values[k] = policy[head.outputs + 1 + k]


def state_value(head, policy, row):
    row.value = policy[head.outputs]
    for k in range(len(row.cost_values)):
        row.cost_values[k] = policy[head.outputs + 1 + k]


def loss_gradient(head, policy, row, gradient, metrics):
    log_probability, entropy = head.evaluate(policy, row.mask, row.action, gradient)
    ratio = exp(log_probability - row.log_probability)
    advantage = row.advantage
    for k in range(len(row.costs)):
        advantage -= 0.5 * row.cost_advantages[k]
        metrics.cost += row.costs[k]
        metrics.target += row.cost_targets[k]
    head.backward(policy, row.mask, row.action, -advantage * ratio, -0.01, gradient)
    gradient[head.outputs] = policy[head.outputs] - row.target
    for k in range(len(row.costs)):
        gradient[head.outputs + 1 + k] = policy[head.outputs + 1 + k] - row.cost_targets[k]
    metrics.entropy += entropy


class Constrained(OnPolicyAgent):
    name = "toy-constrained"
    Config = OnPolicyConfig
    networks = {"policy": Network("observation", gives=policy_and_values, together="shared")}

    class Scratch:
        log_probability: float32
        costs: Costs
        value: float32
        cost_values: Costs
        advantage: float32
        target: float32
        cost_advantages: Costs
        cost_targets: Costs

    act, state_value, values, explained = act, state_value, ("value", "cost_values"), ("value", "target")
    estimate = column(gae), column(gae_of_costs)
    update = (forward("policy", "observation"), each(loss_gradient), backward("policy"), step("policy"))
    reports = {"cost": "cost", "target": "target", "entropy": "entropy"}
