"""TD3, twin delayed deep deterministic policy gradient (Fujimoto et al., 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, tanh
from typing import ClassVar

from velocirl.engine import random
from velocirl.networks import squashed
from velocirl.networks.declared import Columns, Groups, Network, TargetNetwork
from velocirl.networks.heads import Head
from velocirl.program.fields import Action
from velocirl.program.stages import backward, each, every, follow, forward, step
from velocirl.training.off_policy import NoisyConfig, OffPolicyAgent
from velocirl.training.settings.config import require
from velocirl.training.settings.words import Word, renamed


@dataclass(frozen=True)
class TD3Config(NoisyConfig):
    """The settings of TD3. The preset of an environment replaces these defaults."""

    words: ClassVar[Mapping[str, Word]] = {
        **NoisyConfig.words,
        # In Stable-Baselines3, the target networks are updated as often as the actor.
        "policy_delay": Word(
            ("actor_every", "target_every"), lambda value, _: {"actor_every": value, "target_every": value}
        ),
        "target_policy_noise": renamed("smoothing"),
        "target_noise_clip": renamed("smoothing_limit"),
    }
    actor_every: int = 2
    noise: float = 0.1
    smoothing: float = 0.2
    """Standard deviation of the noise that smooths the target policy, in units of half the range of actions."""
    smoothing_limit: float = 0.5
    """Limit of that noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("smoothing", "smoothing_limit"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")


def one_action(agent: TD3) -> Groups:
    """Declare one output per number of an action; small initial weights center the first actions in their range."""
    return [[Columns(agent.head.outputs, gain=0.01)]]


def two_values(agent: TD3) -> Groups:  # noqa: ARG001 - of any action
    """Declare two critics as separate networks."""
    return [[Columns(1)], [Columns(1)]]


def act(actor, row, exploration, noise, settings, rng):
    """Compute the actor's action, with added noise if `exploration` is above 0."""
    for k in range(len(row.action)):
        row.action[k] = tanh(actor[k])
    if exploration > 0.0:
        squashed.add_noise(exploration, settings.noise_correlation, rng, noise, row.action)


def q_value(critics):
    """Return Q(s, a): the smaller of the two critics' values."""
    return squashed.smaller(critics)


def smooth_next_action(target_actor, row, settings, rng):
    """a' = clip(pi'(s') + clip(noise)): target policy smoothing, so that narrow value peaks count less."""
    limit = settings.smoothing_limit
    for k in range(len(row.next_action)):
        noise = min(max(settings.smoothing * random.normal(rng), -limit), limit)
        row.next_action[k] = squashed.within_reach(tanh(target_actor[k]) + noise)


def critic_gradient(critics, target_critics, row, gradient, metrics):
    """(Q_i(s, a) - y)^2 / 2,  y = r + discount min Q'(s', a')"""
    target = row.reward
    if row.discount > 0.0:  # nothing follows a terminal state: not even an infinite value may count
        target += row.discount * squashed.smaller(target_critics)
    for k in range(2):
        error = critics[k] - target
        gradient[k] = row.weight * error
        metrics.critic_loss += row.weight * 0.5 * error * error
        metrics.action_value += 0.5 * critics[k]
    row.error = 0.5 * (abs(critics[0] - target) + abs(critics[1] - target))
    metrics.td_error += row.error


def own_action(actor, row):
    """Compute pi(s) for the actor's loss."""
    for k in range(len(row.new_action)):
        row.new_action[k] = tanh(actor[k])


def value_slope(critics, gradient, metrics):
    """d(-Q_1)/dQ: only the first critic contributes."""
    gradient[0] = -1.0
    gradient[1] = 0.0
    metrics.actor_loss -= critics[0]


def actor_gradient(row, new_action_slope, gradient):
    """-Q_1(s, pi(s)), through pi(s) = tanh(output)"""
    for k in range(len(row.new_action)):
        gradient[k] = new_action_slope[k] * (1.0 - row.new_action[k] * row.new_action[k])


class TD3(OffPolicyAgent):
    """Twin delayed deep deterministic policy gradient: one action for each state, improved along its value.

    actor's loss = -Q_1(s, pi(s)), learnt more slowly than the critics. `TD3("Pendulum-v1").learn(20_000)`.
    """

    name = "td3"
    Config = TD3Config
    # With layer norms in the critics, in 30,000 steps with seeds 1000 and 1001: HalfCheetah reaches 2950 (590 without),
    # Hopper 325 (234 with other seeds), Walker2d 378 (344).
    generic_defaults = {"critic_layer_norm": True}
    networks = {
        "actor": Network("observation", gives=one_action),
        "critics": Network("observation", "action", gives=two_values, setting="critic"),
        "target_actor": TargetNetwork("actor"),
        "target_critics": TargetNetwork("critics"),
    }

    class Scratch:
        """Fields of a transition in an update."""

        next_action: Action
        new_action: Action

    act, q_value = act, q_value
    update = (
        forward("target_actor", "next_observation"),
        each(smooth_next_action),
        forward("target_critics", "next_observation", "next_action"),
        forward("critics", "observation", "action"),
        each(critic_gradient),
        backward("critics"),
        step("critics"),
        every(
            "actor_every",
            forward("actor", "observation"),
            each(own_action),
            forward("critics", "observation", "new_action"),
            each(value_slope),
            backward("critics", into="new_action"),
            each(actor_gradient),
            backward("actor"),
            step("actor"),
        ),
        every(
            "target_every",
            follow("target_critics", "critics", "tau"),
            follow("target_actor", "actor", "tau"),
        ),
    )
    reports = {
        "critic_loss": "critic_loss",
        "action_value": "action_value",
        "td_error": "td_error",
        "actor_loss": "actor_loss",
    }

    def make_head(self) -> Head:
        """Return the head of a deterministic actor within the action bounds; sampling adds uncorrelated `noise`."""
        return squashed.squashed_value(self.check_numbers(), self.config.noise)
