"""Implicit Q-learning (Kostrikov et al., 2021): no action is ever valued that is not in the data."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, tanh

from velocirl.algorithms.online.td3 import q_value, two_values
from velocirl.engine.records import float32
from velocirl.networks import squashed
from velocirl.networks.declared import Columns, Groups, Network, TargetNetwork
from velocirl.networks.heads import Head, bounded_log_deviation, normal_log_density, returning_slope
from velocirl.program.stages import backward, each, every, follow, forward, step
from velocirl.training.offline import OfflineAgent, OfflineCriticConfig
from velocirl.training.settings.config import require


@dataclass(frozen=True)
class IQLSettings:
    """What the rule of IQL has to set, whether it learns from data or from steps."""

    expectile: float = 0.7
    """Expectile of the values of actions that the value of a state is: 0.5 is their mean, near 1 the best of them."""
    temperature: float = 3.0
    """How strongly advantages weigh actions: 0 is to clone all of them, much is to take the best."""
    largest_weight: float = 100.0
    """Upper limit of such a weight."""

    def check_rule(self) -> None:
        """Validate the settings of IQL's update rule."""
        require(0 < self.expectile < 1, "expectile", self.expectile, "above 0 and below 1")
        require(0 <= self.temperature < inf, "temperature", self.temperature, "at least 0")
        require(0 < self.largest_weight < inf, "largest_weight", self.largest_weight, "above 0")


@dataclass(frozen=True)
class IQLConfig(IQLSettings, OfflineCriticConfig):
    """The settings of IQL. The preset of an environment replaces these defaults."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rule()


def mean_and_free_deviation(agent: IQL) -> Groups:
    """Declare means, initially small, and log standard deviations that do not depend on the state."""
    size = agent.head.action_size
    return [[Columns(size, gain=0.01), Columns(size, free=0.0)]]


def one_value(agent: IQL) -> Groups:  # noqa: ARG001 - of any state
    """Declare one output: the value of a state."""
    return [[Columns(1)]]


def state_value(value):
    """V(s)"""
    return value[0]


def expectile_slope(difference, expectile):
    """d(|expectile - [u < 0]| u^2)/du, with u the difference between an action's value and the state's."""
    return 2.0 * (expectile if difference > 0.0 else 1.0 - expectile) * difference


def value_gradient(target_critics, value, row, settings, gradient, metrics):
    """|expectile - [u < 0]| u^2,  u = min Q'(s, a) - V(s)"""
    row.action_value = squashed.smaller(target_critics)
    difference = row.action_value - value[0]
    slope = expectile_slope(difference, settings.expectile)
    gradient[0] = -row.weight * slope
    metrics.value_loss += row.weight * 0.5 * slope * difference
    metrics.value += value[0]


def weight_of(advantage, settings):
    """Return an action's cloning weight: exp(temperature advantage), limited to `largest_weight`. NaN stays NaN."""
    weight = exp(min(settings.temperature * advantage, 80.0)) + 0.0 * advantage
    return settings.largest_weight if weight > settings.largest_weight else weight


def actor_gradient(actor, value, row, settings, gradient, metrics):
    """-w log N(a; tanh(output), deviation),  w = min(exp(temperature (min Q'(s, a) - V(s))), largest)

    With z = (a - tanh(output)) / deviation: d log N / d mean = z / deviation,  d log N / d log deviation = z^2 - 1.
    """
    weight, size = row.weight * weight_of(row.action_value - value[0], settings), len(row.action)
    for k in range(size):
        mean, log_deviation = tanh(actor[k]), bounded_log_deviation(actor[size + k])
        inverse = exp(-log_deviation)
        score = (row.action[k] - mean) * inverse
        gradient[k] = -weight * score * inverse * (1.0 - mean * mean)
        gradient[size + k] = returning_slope(actor[size + k], -weight * (score * score - 1.0))
        metrics.actor_loss -= weight * normal_log_density(score, log_deviation)
    metrics.weight += weight


def critic_gradient(critics, next_value, row, gradient, metrics):
    """(Q_i(s, a) - y)^2 / 2,  y = r + discount V(s')"""
    target = row.reward
    if row.discount > 0.0:  # nothing follows a terminal state: not even an infinite value may count
        target += row.discount * next_value[0]
    for k in range(2):
        error = critics[k] - target
        gradient[k] = row.weight * error
        metrics.critic_loss += row.weight * 0.5 * error * error
        metrics.action_value += 0.5 * critics[k]
    row.error = 0.5 * (abs(critics[0] - target) + abs(critics[1] - target))
    metrics.td_error += row.error


class IQL(OfflineAgent):
    """Implicit Q-learning: learn how good the actions of the data are, and clone those that are better than usual.

    V = an expectile of Q(s, a) over the data; actor's loss = -exp(temperature (Q - V)) log pi(a|s).
    `IQL("ChemicalReactor-v0", data="reactor.vds").learn(100_000)` makes so many updates.
    """

    name = "iql"
    Config = IQLConfig
    networks = {
        "actor": Network("observation", gives=mean_and_free_deviation),
        "critics": Network("observation", "action", gives=two_values, setting="critic"),
        "value": Network("observation", gives=one_value, setting="critic"),
        "target_critics": TargetNetwork("critics"),
    }

    class Scratch:
        """Fields of a transition in an update."""

        action_value: float32

    q_value, state_value = q_value, state_value
    update = (
        forward("target_critics", "observation", "action"),
        forward("value", "observation"),
        each(value_gradient),
        backward("value"),
        step("value"),
        forward("value", "observation"),
        forward("actor", "observation"),
        each(actor_gradient),
        backward("actor"),
        forward("value", "next_observation", name="next_value"),
        forward("critics", "observation", "action"),
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
        """Return the head of a Gaussian with means within the action bounds, clipped to them."""
        return squashed.gaussian_within(self.check_numbers())
