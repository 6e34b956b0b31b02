"""A toy: values are drawn towards the reward above the batch's mean, which stands between forward and loss."""

from __future__ import annotations

from velocirl.networks.declared import Columns, Groups, Network, TargetNetwork
from velocirl.networks.heads import Head, epsilon_greedy
from velocirl.program.stages import backward, each, every, follow, forward, mean, step
from velocirl.training.off_policy import ExploringConfig, OffPolicyAgent


def a_column_for_each_action(agent: CentredValues) -> Groups:
    return [[Columns(agent.head.outputs)]]


def act(head, values, row, mask, rng):
    head.sample(values, mask, rng, row.action)


def add_value(values, row, metrics):
    metrics.value += values[row.action[0]]


def halve(means):
    means.half = 0.5 * means.value


def centred_gradient(values, row, means, gradient, metrics):
    """(Q(s, a) - mean / 2 - r)^2 / 2, the mean taken as a constant"""
    for k in range(len(gradient)):
        gradient[k] = 0.0
    error = values[row.action[0]] - means.half - row.reward
    gradient[row.action[0]] = error
    metrics.loss += 0.5 * error * error


class CentredValues(OffPolicyAgent):
    name = "toy-batch-mean"
    Config = ExploringConfig
    networks = {"values": Network("observation", gives=a_column_for_each_action), "slow": TargetNetwork("values")}
    act = act
    update = (
        forward("values", "observation"),
        mean(add_value, then=halve),
        each(centred_gradient),
        backward("values"),
        step("values"),
        every("target_every", follow("slow", "values", "tau")),
    )
    reports = {"value": "value", "loss": "loss", "half": None}

    def make_head(self) -> Head:
        return epsilon_greedy(self.check_choices(), self.source.masked, 0.1)
