"""Soft actor-critic (Haarnoja et al., 2018), with twin critics and a temperature that is learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import ClassVar

from velocirl.engine.records import float32
from velocirl.networks import squashed
from velocirl.networks.declared import Columns, Groups, Network, Number, TargetNetwork
from velocirl.networks.heads import Head
from velocirl.program.fields import Action
from velocirl.program.stages import backward, each, every, follow, forward, once, step, when
from velocirl.training.off_policy import NoisyConfig, OffPolicyAgent
from velocirl.training.settings.entropy import EntropyConfig
from velocirl.training.settings.words import Word, absent, renamed


@dataclass(frozen=True)
class SACConfig(EntropyConfig, NoisyConfig):
    """The settings of SAC. The preset of an environment replaces these defaults."""

    words: ClassVar[Mapping[str, Word]] = {
        **NoisyConfig.words,
        "ent_coef": renamed("temperature"),
        "target_entropy": renamed("target_entropy", auto=None),
        "use_sde_at_warmup": absent(False, instead="state-dependent exploration is not here"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_entropy()


def mean_and_deviation(agent: SAC) -> Groups:
    """Declare means and log standard deviations; small initial weights center the first actions in their range."""
    return [[Columns(agent.head.outputs, gain=0.01)]]


def two_values(agent: SAC) -> Groups:  # noqa: ARG001 - of any action
    """Declare two critics as separate networks."""
    return [[Columns(1)], [Columns(1)]]


def act(actor, row, exploration, noise, settings, rng):
    """Sample an action from the policy, with added noise if `exploration` is above 0."""
    squashed.sample(actor, rng, row.action)
    if exploration > 0.0:
        squashed.add_noise(exploration, settings.noise_correlation, rng, noise, row.action)


def q_value(critics):
    """Return Q(s, a): the smaller of the two critics' values."""
    return squashed.smaller(critics)


def sample_next_action(actor, row, rng):
    """a' ~ pi(s')"""
    row.next_log_probability = squashed.sample(actor, rng, row.next_action)


def critic_gradient(critics, target_critics, row, numbers, gradient, metrics):
    """(Q_i(s, a) - y)^2 / 2,  y = r + discount (min Q'(s', a') - temperature log pi(a'|s'))"""
    target = row.reward
    if row.discount > 0.0:  # what follows a terminal state does not exist: not even an infinite value may count
        value = squashed.smaller(target_critics)
        target += row.discount * (value - exp(numbers.log_temperature) * row.next_log_probability)
    for k in range(2):
        error = critics[k] - target
        gradient[k] = row.weight * error
        metrics.critic_loss += row.weight * 0.5 * error * error
        metrics.action_value += 0.5 * critics[k]
    row.error = 0.5 * (abs(critics[0] - target) + abs(critics[1] - target))
    metrics.td_error += row.error


def sample_action(actor, row, rng):
    """Sample a new action for the actor's loss; its noise is kept for the reparameterized gradient."""
    row.log_probability = squashed.sample_keeping_noise(actor, rng, row.new_action, row.noise)


def value_slope(critics, gradient, metrics):
    """d(-min Q)/dQ: only the smaller critic contributes."""
    first = critics[0] < critics[1]
    gradient[0] = -1.0 if first else 0.0
    gradient[1] = 0.0 if first else -1.0
    metrics.actor_loss -= squashed.smaller(critics)


def actor_gradient(actor, row, new_action_slope, numbers, settings, gradient, metrics):
    """temperature log pi(a|s) - min Q(s, a), through a = tanh(mean + deviation * noise)"""
    temperature = exp(numbers.log_temperature)
    squashed.gradient(actor, row.new_action, row.noise, new_action_slope, temperature, gradient)
    metrics.actor_loss += temperature * row.log_probability
    metrics.log_probability += row.log_probability
    metrics.entropy -= row.log_probability
    metrics.temperature += temperature
    metrics.temperature_loss -= numbers.log_temperature * (row.log_probability + settings.target_entropy)


def temperature_gradient(means, settings):
    """-log(temperature) (log pi + target entropy): one number from the mean over the batch."""
    return -(means.log_probability + settings.target_entropy)


class SAC(OffPolicyAgent):
    """Soft actor-critic: learn from memory to earn much while acting as much at random as that allows.

    actor's loss = temperature log pi(a|s) - min Q(s, a). `SAC("Pendulum-v1").learn(20_000)`.
    """

    name = "sac"
    Config = SACConfig
    # 2 updates of half the batch size per step, and torch's epsilon. In 30,000 steps Hopper reaches 433, HalfCheetah
    # 2250, Walker2d 465 (5 seeds; Stable-Baselines3's defaults: 330, 1135, 552). BENCHMARKS lists the trials.
    generic_defaults = {
        "learning_rate": 7e-4, "learning_starts": 100, "batch_size": 128, "gradient_steps": 2,
        "optimiser": "adam(epsilon=1e-8)",
    }  # fmt: skip
    networks = {
        "actor": Network("observation", gives=mean_and_deviation),
        "critics": Network("observation", "action", gives=two_values, setting="critic"),
        "target_critics": TargetNetwork("critics"),
        "log_temperature": Number("initial_log_temperature"),
    }

    class Scratch:
        """Fields of a transition in an update."""

        next_action: Action
        next_log_probability: float32
        new_action: Action
        noise: Action
        log_probability: float32

    act, q_value = act, q_value
    update = (
        forward("actor", "next_observation"),
        each(sample_next_action),
        forward("target_critics", "next_observation", "next_action"),
        forward("critics", "observation", "action"),
        each(critic_gradient),
        backward("critics"),
        step("critics"),
        every(
            "actor_every",
            forward("actor", "observation"),
            each(sample_action),
            forward("critics", "observation", "new_action"),
            each(value_slope),
            backward("critics", into="new_action"),
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
        "log_probability": None,
    }

    def make_head(self) -> Head:
        """Return the head of a squashed Gaussian actor within the action bounds."""
        return squashed.squashed_gaussian(self.check_numbers())

    def numbers(self) -> dict[str, float]:
        """Return the initial temperature and the target entropy."""
        return self.config.entropy_numbers(-self.head.action_size)
