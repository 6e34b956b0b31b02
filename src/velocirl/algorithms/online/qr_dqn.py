"""Quantile regression DQN (Dabney et al., 2018): the whole distribution of returns instead of its mean."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from velocirl.engine import random
from velocirl.engine.records import int32
from velocirl.networks.declared import Columns, Groups, Network, TargetNetwork
from velocirl.networks.heads import Head, by_values, mean_of
from velocirl.program.stages import backward, each, every, follow, forward, step, when
from velocirl.training.deep_agent import NATURE
from velocirl.training.off_policy import ExploringConfig, OffPolicyAgent
from velocirl.training.settings.config import require


@dataclass(frozen=True)
class QRDQNConfig(ExploringConfig):
    """The settings of QR-DQN. The preset of an environment replaces these defaults."""

    max_grad_norm: float = 10.0
    quantiles: int = 32
    """Number of quantiles per action."""
    huber: float = 1.0
    """TD error above which the loss is linear; 0 is linear everywhere."""
    double: bool = False
    """Double Q-learning: the network chooses the next action, and the target network values it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.quantiles <= 1000, "quantiles", self.quantiles, "from 1 to 1000")
        require(0 <= self.huber < inf, "huber", self.huber, "at least 0")


def quantile_columns(agent: QRDQN) -> Groups:
    """Declare the quantiles of each action, one action after another."""
    return [[Columns(agent.head.outputs * agent.config.quantiles)]]


def act(head, values, row, mask, exploration, rng):
    """Choose the action with the highest mean of quantiles, or with probability `exploration` a random one."""
    if random.uniform(rng) < exploration:
        head.draw(mask, rng, row.action)
    else:
        head.mode(values, mask, row.action)


def q_value(values, action, settings):
    """Return Q(s, a): the mean of the action's quantiles."""
    return mean_of(values, action, int32(settings.quantiles))


def choose_by_network(head, next_values, row):
    """Choose the next action by the online network (double Q-learning; van Hasselt et al., 2016)."""
    row.next_action = head.best(next_values, row.next_mask)


def choose_by_target(head, target_values, row):
    """Choose the next action by the target network."""
    row.next_action = head.best(target_values, row.next_mask)


def loss_gradient(head, values, target_values, row, settings, gradient, metrics):
    """d(loss)/d(values) of one transition: each quantile moves toward all quantiles of the target.

    loss = sum over i of the mean over j of |tau_i - [e_ij < 0]| huber(e_ij) / h,  e_ij = r + discount q'_j - q_i, where
    tau_i = (i + 1/2) / N; huber(e) = e^2 / 2 up to a limit h, and h (|e| - h / 2) beyond it.
    """
    count, limit = int32(settings.quantiles), settings.huber
    action = row.action[0]
    for k in range(head.outputs * count):
        gradient[k] = 0.0
    loss, target_mean = 0.0, 0.0
    for j in range(count):
        target = row.reward
        if row.discount > 0.0:  # nothing follows a terminal state: not even an infinite value may count
            target += row.discount * target_values[row.next_action * count + j]
        target_mean += target / count
        for i in range(count):
            column = action * count + i
            error = target - values[column]
            size, below = abs(error), 1.0 if error < 0.0 else 0.0
            share = abs((i + 0.5) / count - below) / count
            straight = size > limit or limit == 0.0
            # The slope of the linear part is finite: `error * 0.0` passes a non-finite error on to the NaN guard.
            slope = (1.0 - 2.0 * below) + error * 0.0 if straight else error / limit
            gradient[column] -= row.weight * share * slope
            loss += share * ((size - 0.5 * limit) if straight else 0.5 * error * error / limit)
    row.error = target_mean - mean_of(values, action, count)
    metrics.loss += row.weight * loss
    metrics.action_value += mean_of(values, action, count)
    metrics.td_error += abs(row.error)
    metrics.spread += values[action * count + count - 1] - values[action * count]


class QRDQN(OffPolicyAgent):
    """Deep Q-learning of the distribution of returns: `QRDQN("CartPole-v1").learn(50_000)`.

    The network gives N quantiles of what each action may return; it acts by their means.
    """

    name = "qr-dqn"
    Config = QRDQNConfig
    # The paper's settings for Atari games, with a smaller replay buffer.
    pictures = {
        **NATURE, "quantiles": 200, "batch_size": 32, "learning_rate": 5e-5, "optimiser": "adam(epsilon=0.0003125)",
        "learning_starts": 20_000, "target_every": 2500, "exploration_final": 0.01,
    }  # fmt: skip
    networks = {
        "values": Network("observation", gives=quantile_columns),
        "target_values": TargetNetwork("values"),
    }

    class Scratch:
        """Fields of a transition in an update."""

        next_action: int32

    act, q_value = act, q_value
    update = (
        forward("target_values", "next_observation"),
        when("double", forward("values", "next_observation", name="next_values"), each(choose_by_network),
             otherwise=(each(choose_by_target),)),
        forward("values", "observation"),
        each(loss_gradient),
        backward("values"),
        step("values"),
        every("target_every", follow("target_values", "values", "tau")),
    )  # fmt: skip
    reports = {"loss": "loss", "action_value": "action_value", "td_error": "td_error", "spread": "quantile_spread"}

    def make_head(self) -> Head:
        """Return the head of a choice by mean quantiles, which explores, when sampled, with `exploration_final`."""
        config = self.config
        return by_values(self.check_choices(), self.source.masked, config.exploration_final, config.quantiles)
