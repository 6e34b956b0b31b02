"""ReBRAC (Tarasov et al., 2023): TD3+BC with layer norms in the critics and penalties of its own for both sides."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, tanh

from velocirl.algorithms.offline.td3_bc import keep_slope
from velocirl.algorithms.online.td3 import one_action, own_action, q_value, two_values
from velocirl.engine import random
from velocirl.engine.records import float32
from velocirl.networks import squashed
from velocirl.networks.declared import Network, TargetNetwork
from velocirl.networks.heads import Head
from velocirl.program.fields import Action, NextAction
from velocirl.program.stages import backward, each, every, follow, forward, mean, step
from velocirl.training.offline import OfflineAgent, OfflineCriticConfig
from velocirl.training.settings.config import require, require_whole


@dataclass(frozen=True)
class ReBRACConfig(OfflineCriticConfig):
    """The settings of ReBRAC. The preset of an environment replaces these defaults."""

    hidden: tuple[int, ...] = (256, 256, 256)
    batch_size: int = 1024
    learning_rate: float = 1e-3
    actor_penalty: float = 0.1
    """Weight of the distance between the actor's actions and those of the data."""
    critic_penalty: float = 0.01
    """Weight of that distance at the next state, in the target of the critics."""
    actor_every: int = 2
    """Number of critic updates per actor update."""
    smoothing: float = 0.2
    """Standard deviation of the noise that smooths the target policy, in units of half the range of actions."""
    smoothing_limit: float = 0.5
    """Limit of that noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, 1, 2**31 - 1, "actor_every")
        for name in ("actor_penalty", "critic_penalty", "smoothing", "smoothing_limit"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")


def smooth_target_action(target_actor, row, settings, rng):
    """a' = clip(pi'(s') + clip(noise)): target policy smoothing, so that narrow value peaks count less."""
    limit = settings.smoothing_limit
    for k in range(len(row.target_action)):
        noise = min(max(settings.smoothing * random.normal(rng), -limit), limit)
        row.target_action[k] = squashed.within_reach(tanh(target_actor[k]) + noise)


def critic_gradient(critics, target_critics, row, settings, gradient, metrics):
    """(Q_i(s, a) - y)^2 / 2,  y = r + discount (min Q'(s', a') - critic_penalty |a' - b'|^2)

    b' is the data's action at s'. It is unknown where an episode was truncated; the penalty is then 0.
    """
    target = row.reward
    if row.discount > 0.0:  # nothing follows a terminal state: not even an infinite value may count
        distance = 0.0
        if row.has_next:
            for k in range(len(row.target_action)):
                difference = row.target_action[k] - row.next_action[k]
                distance += difference * difference
        target += row.discount * (squashed.smaller(target_critics) - settings.critic_penalty * distance)
    for k in range(2):
        error = critics[k] - target
        gradient[k] = error
        metrics.critic_loss += 0.5 * error * error
        metrics.action_value += 0.5 * critics[k]
        metrics.td_error += 0.5 * abs(error)


def value_slope(critics, row, gradient, metrics):
    """d(-min Q)/dQ: only the smaller critic contributes; also record the magnitude of its values."""
    first = critics[0] < critics[1]
    gradient[0] = -1.0 if first else 0.0
    gradient[1] = 0.0 if first else -1.0
    row.value = squashed.smaller(critics)
    metrics.value_size += abs(row.value)


def actor_gradient(row, means, settings, gradient, metrics):
    """-lambda min Q(s, pi(s)) + actor_penalty |pi(s) - a|^2,  lambda = 1 / mean of |min Q| over the batch

    through pi(s) = tanh(output), with lambda as a constant.
    """
    scale = 1.0 / max(means.value_size, 1e-8)
    metrics.actor_loss -= scale * row.value
    for k in range(len(row.action)):
        action = row.new_action[k]
        error = action - row.action[k]
        gradient[k] = (scale * row.slope[k] + 2.0 * settings.actor_penalty * error) * (1.0 - action * action)
        metrics.actor_loss += settings.actor_penalty * error * error
        metrics.behaviour_loss += error * error


class ReBRAC(OfflineAgent):
    """ReBRAC: TD3 on recorded data, with both the actor and the target of the critics held near its actions.

    actor's loss = -lambda min Q(s, pi(s)) + actor_penalty |pi(s) - a|^2. Critics have layer norms.
    `ReBRAC("ChemicalReactor-v0", data="reactor.vds").learn(100_000)` makes so many updates.
    """

    name = "rebrac"
    Config = ReBRACConfig
    networks = {
        "actor": Network("observation", gives=one_action),
        "critics": Network("observation", "action", gives=two_values, setting="critic", layer_norm=True),
        "target_actor": TargetNetwork("actor"),
        "target_critics": TargetNetwork("critics"),
    }

    class Scratch:
        """Fields of a transition, stored and added by an update."""

        next_action: NextAction  # the data's action at the next state
        target_action: Action
        new_action: Action
        slope: Action
        value: float32

    q_value = q_value
    update = (
        forward("target_actor", "next_observation"),
        each(smooth_target_action),
        forward("target_critics", "next_observation", "target_action"),
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
            mean(keep_slope),
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
        "behaviour_loss": "behaviour_loss",
        "value_size": None,
    }

    def make_head(self) -> Head:
        """Return the head of a deterministic actor within the action bounds, without noise."""
        return squashed.squashed_value(self.check_numbers(), 0.0)
