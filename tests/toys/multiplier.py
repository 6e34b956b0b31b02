"""A toy: a policy gradient whose entropy a multiplier holds at a limit; it moves once in an update and is saved."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from toys.two_values import TwoValues

from velocirl.networks.declared import Columns, Groups, Network, Number
from velocirl.program.stages import backward, each, forward, once, step
from velocirl.training.on_policy import OnPolicyConfig


@dataclass(frozen=True)
class MultiplierConfig(OnPolicyConfig):
    first_multiplier: float = 1.0
    first_count: float = 0.0
    limit: float = 0.4


def policy_and_two_values(agent: Held) -> Groups:
    return [[Columns(agent.head.outputs, 0.01)], [Columns(1), Columns(1)]]


def loss_gradient(head, policy, row, numbers, settings, gradient, metrics):
    log_probability, entropy = head.evaluate(policy, row.mask, row.action, gradient)
    ratio = exp(log_probability - row.log_probability)
    head.backward(policy, row.mask, row.action, -row.advantage * ratio, -numbers.multiplier, gradient)
    gradient[head.outputs] = policy[head.outputs] - row.target
    gradient[head.outputs + 1] = 0.0
    metrics.entropy += entropy
    metrics.over += entropy - settings.limit


def multiplier_gradient(means, numbers):
    """d / d multiplier of multiplier * (entropy - limit), held from falling far below 0"""
    return means.over if numbers.multiplier > -1.0 else 0.0


def count(means, numbers):
    numbers.count += means.rows


class Held(TwoValues):
    name = "toy-multiplier"
    Config = MultiplierConfig
    networks = {
        "policy": Network("observation", gives=policy_and_two_values, together="shared"),
        "multiplier": Number("first_multiplier"),
        "count": Number("first_count"),
    }
    update = (
        forward("policy", "observation"),
        each(loss_gradient),
        backward("policy"),
        step("policy"),
        once(multiplier_gradient, steps="multiplier"),
        once(count),
    )
    reports = {"entropy": "entropy", "over": "over"}
