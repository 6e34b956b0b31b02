"""A toy: a policy gradient with two value columns, of the reward and of a cost, each with advantages of its own."""

from __future__ import annotations

from math import exp

from velocirl.buffers.returns import gae
from velocirl.engine.records import float32
from velocirl.networks.declared import Columns, Groups, Network
from velocirl.program.stages import backward, column, each, forward, step
from velocirl.training.on_policy import OnPolicyAgent, OnPolicyConfig


def policy_and_two_values(agent: TwoValues) -> Groups:
    return [[Columns(agent.head.outputs, 0.01)], [Columns(1), Columns(1)]]


def act(head, policy, row, mask, rng):
    row.log_probability = head.sample(policy, mask, rng, row.action)
    row.cost = 1.0 if row.action[0] == 0 else 0.0
    row.value = policy[head.outputs]
    row.cost_value = policy[head.outputs + 1]


def state_value(head, policy, row):
    row.value = policy[head.outputs]
    row.cost_value = policy[head.outputs + 1]


def loss_gradient(head, policy, row, gradient, metrics):
    log_probability, entropy = head.evaluate(policy, row.mask, row.action, gradient)
    ratio = exp(log_probability - row.log_probability)
    advantage = row.advantage - 0.5 * row.cost_advantage
    head.backward(policy, row.mask, row.action, -advantage * ratio, -0.01, gradient)
    gradient[head.outputs] = policy[head.outputs] - row.target
    gradient[head.outputs + 1] = policy[head.outputs + 1] - row.cost_target
    metrics.policy_loss -= advantage * ratio
    metrics.cost += row.cost
    metrics.entropy += entropy


class TwoValues(OnPolicyAgent):
    name = "toy-two-values"
    Config = OnPolicyConfig
    networks = {"policy": Network("observation", gives=policy_and_two_values, together="shared")}

    class Scratch:
        log_probability: float32
        cost: float32
        value: float32
        cost_value: float32
        advantage: float32
        target: float32
        cost_advantage: float32
        cost_target: float32

    act, state_value, values, explained = act, state_value, ("value", "cost_value"), ("value", "target")
    estimate = (
        column(gae),
        column(gae, reward="cost", value="cost_value", final_value="final_cost_value", advantage="cost_advantage",
               target="cost_target"),
    )  # fmt: skip
    update = (forward("policy", "observation"), each(loss_gradient), backward("policy"), step("policy"))
    reports = {"policy_loss": "policy_loss", "cost": "cost", "entropy": "entropy"}
