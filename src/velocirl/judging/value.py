"""Fitted Q evaluation (Le, Voloshin and Yue, 2019): the value of a policy, learned from another policy's data."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from velocirl.networks.declared import Columns, Groups, Network, TargetNetwork
from velocirl.networks.heads import Head, gaussian
from velocirl.program.stages import backward, each, every, follow, forward, step
from velocirl.training.offline import OfflineAgent, OfflineCriticConfig


@dataclass(frozen=True)
class FittedValueConfig(OfflineCriticConfig):
    """Settings of fitted Q evaluation."""

    hidden: tuple[int, ...] = (64, 64)
    layer_norm: bool | None = True  # bounds the values of out-of-distribution actions
    learning_rate: float = 1e-3
    learning_rate_schedule: str = "linear"
    tau: float = 0.3  # values propagate over hundreds of steps, through as many target updates
    lowest: float = -inf
    """The lowest mean of rewards that there may be."""
    highest: float = inf
    """The highest mean of rewards that there may be."""


def first_number(output, mask, action):  # noqa: ARG001 - every head has the same signatures
    """Write the prediction: the value in the first action entry, 0 in the second."""
    action[0], action[1] = output[0], 0.0


def act(head, value, row, mask):
    """Write the predicted value."""
    head.mode(value, mask, row.action)


def value_gradient(value, target_value, row, settings, gradient, metrics):
    """n^2 (f(x) - y)^2 / 2,  y = r / n + (1 - 1 / n) f'(x'), clipped to the possible rewards"""
    target, share, weight = row.reward, row.action[0], row.action[1]
    if share > 0.0:  # after an end there is no next value, which might be infinite
        target += share * target_value[0]
    target = settings.lowest if target < settings.lowest else target
    target = settings.highest if target > settings.highest else target
    error = value[0] - target
    gradient[0] = weight * error
    metrics.loss += 0.5 * weight * error * error
    metrics.value += value[0]


def one_value(agent: FittedValue) -> Groups:  # noqa: ARG001 - of any point
    """Declare the value of a point, 0 initially."""
    return [[Columns(1, gain=0.01)]]


class FittedValue(OfflineAgent, listed=False):
    """Learner of the value of a process (`judging.process`); it predicts this value."""

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
        """Return a head with one number, the network's output."""
        return gaussian(2)._replace(name="value", outputs=1, mode=first_number)
