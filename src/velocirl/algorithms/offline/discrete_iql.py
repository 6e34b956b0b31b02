"""Implicit Q-learning for a single choice of several actions."""

from __future__ import annotations

from dataclasses import dataclass

from velocirl.algorithms.offline.iql import IQLConfig, expectile_slope, one_value, state_value, weight_of
from velocirl.algorithms.online.discrete_sac import logits, q_value, two_critics
from velocirl.engine.records import float32
from velocirl.networks.declared import Network, TargetNetwork
from velocirl.networks.heads import Head, categorical
from velocirl.program.stages import backward, each, every, follow, forward, step
from velocirl.training.offline import OfflineAgent


@dataclass(frozen=True)
class DiscreteIQLConfig(IQLConfig):
    """The settings of discrete IQL. The preset of an environment replaces these defaults."""


def value_gradient(head, target_critics, value, row, settings, gradient, metrics):
    """|expectile - [u < 0]| u^2,  u = min Q'(s, a) - V(s)"""
    action = row.action[0]
    row.action_value = min(target_critics[action], target_critics[head.outputs + action])
    difference = row.action_value - value[0]
    slope = expectile_slope(difference, settings.expectile)
    gradient[0] = -slope
    metrics.value_loss += 0.5 * slope * difference
    metrics.value += value[0]


def actor_gradient(head, actor, value, row, settings, gradient, metrics):
    """-w log pi(a|s),  w = min(exp(temperature (min Q'(s, a) - V(s))), largest)"""
    weight = weight_of(row.action_value - value[0], settings)
    log_probability, _ = head.evaluate(actor, row.mask, row.action, gradient)
    head.backward(actor, row.mask, row.action, -weight, 0.0, gradient)
    metrics.actor_loss -= weight * log_probability
    metrics.weight += weight


def critic_gradient(head, critics, next_value, row, gradient, metrics):
    """(Q_i(s, a) - y)^2 / 2,  y = r + discount V(s')"""
    count, action = head.outputs, row.action[0]
    target = row.reward
    if row.discount > 0.0:  # nothing follows a terminal state: not even an infinite value may count
        target += row.discount * next_value[0]
    for k in range(2 * count):
        gradient[k] = 0.0
    for i in range(2):
        estimate = critics[i * count + action]
        error = estimate - target
        gradient[i * count + action] = error
        metrics.critic_loss += 0.5 * error * error
        metrics.action_value += 0.5 * estimate
        metrics.td_error += 0.5 * abs(error)


class DiscreteIQL(OfflineAgent):
    """Implicit Q-learning for a choice of actions: clone those of the data that are better than usual.

    V = an expectile of Q(s, a) over the data; actor's loss = -exp(temperature (Q - V)) log pi(a|s).
    `DiscreteIQL("CartPole-v1", data="cart.vds").learn(50_000)` makes so many updates.
    """

    name = "discrete-iql"
    Config = DiscreteIQLConfig
    networks = {
        "actor": Network("observation", gives=logits),
        "critics": Network("observation", gives=two_critics, setting="critic"),
        "value": Network("observation", gives=one_value, setting="critic"),
        "target_critics": TargetNetwork("critics"),
    }

    class Scratch:
        """Fields of a transition in an update."""

        action_value: float32

    q_value, state_value = q_value, state_value
    update = (
        forward("target_critics", "observation"),
        forward("value", "observation"),
        each(value_gradient),
        backward("value"),
        step("value"),
        forward("value", "observation"),
        forward("actor", "observation"),
        each(actor_gradient),
        backward("actor"),
        forward("value", "next_observation", name="next_value"),
        forward("critics", "observation"),
        each(critic_gradient),
        backward("critics"),
        step("actor"),
        step("critics"),
        every("target_every", follow("target_critics", "critics", "tau")),
    )
    reports = {
        "value_loss": "value_loss",
        "value": "value",
        "critic_loss": "critic_loss",
        "action_value": "action_value",
        "td_error": "td_error",
        "actor_loss": "actor_loss",
        "weight": "weight",
    }

    def make_head(self) -> Head:
        """Return the head of one choice, sampled from the policy's probabilities."""
        return categorical(self.check_choices(), self.source.masked)
