"""TD3+BC (Fujimoto and Gu, 2021): TD3 on recorded data, held near the actions in it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from velocirl.algorithms.online.td3 import (
    critic_gradient,
    one_action,
    own_action,
    q_value,
    smooth_next_action,
    two_values,
)  # fmt: skip
from velocirl.engine.records import float32
from velocirl.networks import squashed
from velocirl.networks.declared import Network, TargetNetwork
from velocirl.networks.heads import Head
from velocirl.program.fields import Action
from velocirl.program.stages import backward, each, every, follow, forward, mean, step
from velocirl.training.offline import OfflineAgent, OfflineCriticConfig
from velocirl.training.settings.config import require, require_whole


@dataclass(frozen=True)
class TD3BCConfig(OfflineCriticConfig):
    """The settings of TD3+BC. The preset of an environment replaces these defaults."""

    alpha: float = 2.5
    """Weight of values against that of staying near the data."""
    actor_every: int = 2
    """Number of critic updates per actor update."""
    smoothing: float = 0.2
    """Standard deviation of the noise that smooths the target policy, in units of half the range of actions."""
    smoothing_limit: float = 0.5
    """Limit of that noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, 1, 2**31 - 1, "actor_every")
        for name in ("alpha", "smoothing", "smoothing_limit"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")


def value_slope(critics, row, gradient, metrics):
    """d(-Q_1)/dQ: only the first critic contributes; also record the magnitude of its values."""
    gradient[0] = -1.0
    gradient[1] = 0.0
    row.value = critics[0]
    metrics.value_size += abs(row.value)


def keep_slope(row, new_action_slope):
    """Keep d(-Q)/d(action), to be scaled by the values of all rows."""
    for k in range(len(row.slope)):
        row.slope[k] = new_action_slope[k]


def actor_gradient(row, means, settings, gradient, metrics):
    """-lambda Q_1(s, pi(s)) + mean of (pi(s) - a)^2,  lambda = alpha / mean of |Q_1| over the batch

    through pi(s) = tanh(output), with lambda as a constant.
    """
    scale, size = settings.alpha / max(means.value_size, 1e-8), len(row.action)
    metrics.actor_loss -= scale * row.value
    for k in range(size):
        action = row.new_action[k]
        error = action - row.action[k]
        gradient[k] = (scale * row.slope[k] + 2.0 / size * error) * (1.0 - action * action)
        metrics.actor_loss += error * error / size
        metrics.behaviour_loss += error * error / size


class TD3BC(OfflineAgent):
    """TD3+BC: TD3's critics and actor on recorded data, with actions held near those of the data.

    actor's loss = -lambda Q_1(s, pi(s)) + |pi(s) - a|^2, lambda = alpha / mean |Q_1|. Critics have layer norms: while
    values are near 0, lambda is large, and steep slopes would drive actions to their bounds, where tanh is flat.
    `TD3BC(data="reactor.vds").learn(100_000)` makes so many updates.
    """

    name = "td3-bc"
    Config = TD3BCConfig
    networks = {
        "actor": Network("observation", gives=one_action),
        "critics": Network("observation", "action", gives=two_values, setting="critic", layer_norm=True),
        "target_actor": TargetNetwork("actor"),
        "target_critics": TargetNetwork("critics"),
    }

    class Scratch:
        """Fields of a transition in an update."""

        next_action: Action
        new_action: Action
        slope: Action
        value: float32

    q_value = q_value
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
