"""Soft actor-critic for a single choice of several actions (Christodoulou, 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import ClassVar

from velocirl.networks.declared import Columns, Groups, Network, Number, TargetNetwork
from velocirl.networks.heads import Head, categorical
from velocirl.program.stages import backward, each, every, follow, forward, once, step, when
from velocirl.training.off_policy import ActorCriticConfig, OffPolicyAgent
from velocirl.training.settings.config import require
from velocirl.training.settings.entropy import EntropyConfig


@dataclass(frozen=True)
class DiscreteSACConfig(EntropyConfig, ActorCriticConfig):
    """The settings of discrete SAC. The preset of an environment replaces these defaults."""

    fixed: ClassVar[frozenset[str]] = frozenset({"entropy_share"})
    num_envs: int = 4
    train_every: int = 2
    batch_size: int = 128
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    target_entropy: float | None = None
    """Entropy that auto aims at. Without it, entropy_share decides."""
    entropy_share: float = 0.3
    """Target entropy as a share of that of uniformly random actions, if target_entropy is not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_entropy()
        require(0 <= self.entropy_share <= 1, "entropy_share", self.entropy_share, "from 0 to 1")


def logits(agent: DiscreteSAC) -> Groups:
    """Declare one output per action; small initial weights make all actions about equally probable."""
    return [[Columns(agent.head.outputs, gain=0.01)]]


def two_critics(agent: DiscreteSAC) -> Groups:
    """Declare two critics as separate networks, each with one output per action."""
    return [[Columns(agent.head.outputs)], [Columns(agent.head.outputs)]]


def act(head, actor, row, mask, rng):
    """Sample an action from the policy."""
    head.sample(actor, mask, rng, row.action)


def q_value(head, critics, action):
    """Return Q(s, a): the smaller of the two critics' values."""
    return min(critics[action], critics[head.outputs + action])


def critic_gradient(head, next_policy, target_critics, critics, row, numbers, gradient, metrics):
    """(Q_i(s, a) - y)^2 / 2,  y = r + discount sum over a' of pi(a'|s') (min Q'(s', a') - temperature log pi(a'|s'))"""
    count, action = head.outputs, row.action[0]
    target = row.reward
    if row.discount > 0.0:  # nothing follows a terminal state: not even an infinite value may count
        _, entropy = head.evaluate(next_policy, row.next_mask, row.action, gradient)
        value = exp(numbers.log_temperature) * entropy
        for k in range(count):  # `gradient` holds the probabilities
            value += gradient[k] * min(target_critics[k], target_critics[count + k])
        target += row.discount * value
    for k in range(2 * count):
        gradient[k] = 0.0
    row.error = 0.0
    for i in range(2):
        estimate = critics[i * count + action]
        error = estimate - target
        gradient[i * count + action] = row.weight * error
        row.error += 0.5 * abs(error)
        metrics.critic_loss += row.weight * 0.5 * error * error
        metrics.action_value += 0.5 * estimate
    metrics.td_error += row.error


def actor_gradient(head, actor, critics, row, numbers, settings, gradient, metrics):
    """sum over a of pi(a|s) (temperature log pi(a|s) - min Q(s, a)): exact, since all actions are evaluated.

    With p the probabilities and f_a the bracket, d / d logit_k = p_k (f_k - sum of p f).
    """
    count, temperature = head.outputs, exp(numbers.log_temperature)
    _, entropy = head.evaluate(actor, row.mask, row.action, gradient)  # leaves the probabilities in gradient
    mean = -temperature * entropy
    for k in range(count):
        mean -= gradient[k] * min(critics[k], critics[count + k])
    for k in range(count):
        probability = gradient[k]
        value = min(critics[k], critics[count + k])
        gradient[k] = probability * (temperature * log(max(probability, 1e-20)) - value - mean)
    metrics.actor_loss += mean
    metrics.entropy += entropy
    metrics.temperature += temperature
    metrics.temperature_loss += numbers.log_temperature * (entropy - settings.target_entropy)


def temperature_gradient(means, settings):
    """log(temperature) (entropy - target entropy): one number from the mean over the batch."""
    return means.entropy - settings.target_entropy


class DiscreteSAC(OffPolicyAgent):
    """Soft actor-critic for a choice of actions: earn much while acting as much at random as that allows.

    actor's loss = sum of pi(a|s) (temperature log pi(a|s) - min Q(s, a)). `DiscreteSAC("CartPole-v1").learn(30_000)`.
    """

    name = "discrete-sac"
    Config = DiscreteSACConfig
    networks = {
        "actor": Network("observation", gives=logits),
        "critics": Network("observation", gives=two_critics, setting="critic"),
        "target_critics": TargetNetwork("critics"),
        "log_temperature": Number("initial_log_temperature"),
    }
    act, q_value = act, q_value
    update = (
        forward("actor", "next_observation", name="next_policy"),
        forward("target_critics", "next_observation"),
        forward("critics", "observation"),
        each(critic_gradient),
        backward("critics"),
        step("critics"),
        every(
            "actor_every",
            forward("actor", "observation"),
            forward("critics", "observation"),
            each(actor_gradient),
            backward("actor"),
            step("actor"),
            when("learns_temperature", once(temperature_gradient, steps="log_temperature")),
        ),
        every("target_every", follow("target_critics", "critics", "tau")),
    )
    reports = {
        "critic_loss": "critic_loss",
        "action_value": "action_value",
        "td_error": "td_error",
        "actor_loss": "actor_loss",
        "entropy": "entropy",
        "temperature": "ent_coef",
        "temperature_loss": "ent_coef_loss",
    }

    def make_head(self) -> Head:
        """Return the head of one choice, sampled from the policy's probabilities."""
        return categorical(self.check_choices(), self.source.masked)

    def numbers(self) -> dict[str, float]:
        """Return the initial temperature and the target entropy."""
        return self.config.entropy_numbers(self.config.entropy_share * log(max(self.head.outputs, 1)))
