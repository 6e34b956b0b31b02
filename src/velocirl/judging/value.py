"""Fitted Q evaluation (Le, Voloshin and Yue, 2019): the value of a policy, learnt from data of another."""

from __future__ import annotations

from dataclasses import dataclass

from velocirl.learners.stages import backward, each, every, follow, forward, step
from velocirl.networks.declared import Columns, Groups, Network, TargetNetwork
from velocirl.networks.heads import Head, gaussian
from velocirl.training.offline import OfflineAgent, OfflineCriticConfig


@dataclass(frozen=True)
class FittedValueConfig(OfflineCriticConfig):
    """The settings of fitted Q evaluation."""

    gamma: float = 1.0
    hidden: tuple[int, ...] = (128, 128)
    layer_norm: bool | None = True  # values of actions that the data has not stay within reach
    learning_rate: float = 1e-3
    learning_rate_schedule: str = "linear"
    batch_size: int = 512
    tau: float = 0.05


def act(head, value, row, mask):
    """There is nothing to do but to say the value."""
    head.mode(value, mask, row.action)


def value_gradient(value, target_value, row, gradient, metrics):
    """(f(x) - y)^2 / 2,  y = r + discount f'(x')"""
    target = row.reward
    if row.discount > 0.0:  # what follows an end does not exist: not even an infinite value may count
        target += row.discount * target_value[0]
    error = value[0] - target
    gradient[0] = error
    metrics.loss += 0.5 * error * error
    metrics.value += value[0]


def one_value(agent: FittedValue) -> Groups:  # noqa: ARG001 - of any point
    """The value of a point, 0 at first."""
    return [[Columns(1, gain=0.01)]]


class FittedValue(OfflineAgent, listed=False):
    """Learns the value of a process (`judging.process`); what it predicts is that value."""

    name = "fitted-q-evaluation"
    Config = FittedValueConfig
    networks = {"value": Network("observation", gives=one_value), "target_value": TargetNetwork("value")}
    act = act
    update = (
        forward("target_value", "next_observation"),
        forward("value", "observation"),
        each(value_gradient),
        backward("value"),
        step("value"),
        every("target_every", follow("target_value", "value", "tau")),
    )
    reports = {"loss": "loss", "value": "value"}

    def make_head(self) -> Head:
        """One number, as the network gives it."""
        return gaussian(1)._replace(name="value", outputs=1)
