"""Deep Q-learning (Mnih et al., 2015), with double and dueling networks, priorities and returns over n steps."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from velocirl.engine import random
from velocirl.engine.records import int32
from velocirl.networks.declared import Columns, Groups, Network, TargetNetwork
from velocirl.networks.heads import Head, epsilon_greedy
from velocirl.program.stages import backward, each, every, follow, forward, step, when
from velocirl.training.deep_agent import NATURE
from velocirl.training.off_policy import ExploringConfig, OffPolicyAgent
from velocirl.training.settings.config import require


@dataclass(frozen=True)
class DQNConfig(ExploringConfig):
    """The settings of DQN. The preset of an environment replaces these defaults."""

    max_grad_norm: float = 10.0
    double: bool = True
    """Double Q-learning: the network chooses the next action, and the target network values it."""
    dueling: bool = True
    """Dueling network: state value and advantages are separate outputs."""
    huber: float = 1.0
    """TD error above which the loss is linear; 0 is a squared error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.huber < inf, "huber", self.huber, "at least 0")


def action_columns(agent: DQN) -> Groups:
    """Declare one output per action and, with dueling, one for the state value."""
    return [[Columns(agent.head.outputs), *([Columns(1)] if agent.config.dueling else [])]]


def act(head, values, row, mask, exploration, rng):
    """Choose the network's best action, or with probability `exploration` a random one."""
    if random.uniform(rng) < exploration:
        head.draw(mask, rng, row.action)
    else:
        head.mode(values, mask, row.action)


def value_of(head, values, action, settings):
    """Return Q(s, a). With dueling (Wang et al., 2016) the columns are advantages, then the state value.

    Q(s, a) = V(s) + A(s, a) - mean of A(s, .); values and advantages have the same best action.
    """
    if settings.dueling == 0.0:
        return values[action]
    total = 0.0
    for k in range(head.outputs):
        total += values[k]
    return values[head.outputs] + values[action] - total / head.outputs


def choose_by_network(head, next_values, row):
    """Choose the next action by the online network (double Q-learning; van Hasselt et al., 2016)."""
    row.next_action = head.best(next_values, row.next_mask)


def choose_by_target(head, target_values, row):
    """Choose the next action by the target network."""
    row.next_action = head.best(target_values, row.next_mask)


def loss_gradient(head, values, target_values, row, settings, gradient, metrics):
    """d(loss)/d(values) of one transition: loss = weight * huber(Q(s, a) - y),  y = r + discount Q'(s', a').

    huber(e) = e^2 / 2 up to a limit h, and linear beyond it: h (|e| - h / 2). The reward is an n-step return; the
    discount is gamma^n, and 0 after a terminal state.
    """
    target = row.reward
    if row.discount > 0.0:  # nothing follows a terminal state: not even an infinite value may count
        target += row.discount * value_of(head, target_values, row.next_action, settings)
    action = row.action[0]
    value = value_of(head, values, action, settings)
    error = value - target
    size, limit = abs(error), settings.huber
    straight = limit > 0.0 and size > limit
    # The slope of the linear part is finite: `error * 0.0` passes a non-finite error on to the NaN guard.
    slope = row.weight * ((limit if error > 0.0 else -limit) + error * 0.0 if straight else error)

    for k in range(head.outputs):
        gradient[k] = -slope / head.outputs if settings.dueling != 0.0 else 0.0
    gradient[action] += slope
    if settings.dueling != 0.0:
        gradient[head.outputs] = slope

    row.error = error
    metrics.loss += row.weight * (limit * (size - 0.5 * limit) if straight else 0.5 * error * error)
    metrics.action_value += value
    metrics.td_error += size


class DQN(OffPolicyAgent):
    """Deep Q-learning: act, remember, and learn the values of actions from what is remembered.

    loss = huber(Q(s, a) - (r + gamma Q'(s', a'))), a' the best action at s'. `DQN("CartPole-v1").learn(50_000)`.
    Outside of training it takes a random action with the probability `exploration_final`, unless it is asked to be
    deterministic.
    """

    name = "dqn"
    Config = DQNConfig
    # As many updates as steps: see `PPO.python_steps`. Layer norms raise LunarLander from 90 to 219. Returns over 3
    # steps raise MountainCar to -101, where everything else stays at -200 (2 seeds). Torch's epsilon of 1e-8 lowers
    # CartPole from 500 to 314 in 50,000 steps. Scaled observations raise MountainCar from -174 to -100 (3 seeds).
    generic_defaults = {
        "train_every": 8, "gradient_steps": 8, "learning_rate": 5e-4, "hidden": (128, 128), "layer_norm": True,
        "n_step": 3,
    }  # fmt: skip
    # Usual settings for Atari since Mnih et al. (2015), with Adam and a smaller replay buffer.
    pictures = {
        **NATURE, "layer_norm": None, "n_step": 1, "train_every": 4, "gradient_steps": 1, "batch_size": 32,
        "learning_rate": 1e-4, "learning_starts": 20_000, "target_every": 2500, "exploration_final": 0.01,
    }  # fmt: skip
    networks = {
        "values": Network("observation", gives=action_columns),
        "target_values": TargetNetwork("values"),
    }

    class Scratch:
        """Fields of a transition in an update."""

        next_action: int32

    act, q_value = act, value_of
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
    reports = {"loss": "loss", "action_value": "action_value", "td_error": "td_error"}

    def make_head(self) -> Head:
        """Return the head of a greedy choice that explores, when sampled, with probability `exploration_final`."""
        return epsilon_greedy(self.check_choices(), self.source.masked, self.config.exploration_final)
