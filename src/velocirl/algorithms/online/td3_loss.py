"""The one place where the losses of TD3 are written: for one sample, compiled for every target alike.

critics:  (Q_i(s, a) - y)^2 / 2,  y = r + discount min Q_frozen(s', a'),  a' = clip(pi_frozen(s') + clip(noise))
actor:    -Q_1(s, pi(s)),  pi(s) = tanh(output)
"""

from __future__ import annotations

from collections.abc import Callable
from math import tanh
from typing import Any, NamedTuple

import numpy as np

from velocirl.engine import random
from velocirl.networks.squashed import within_reach
from velocirl.training.action_noise import noise_adder, uniform_draw
from velocirl.training.off_policy import ACTOR_METRICS, ActorCriticLoss, Behaviour
from velocirl.training.twin_critics import least, twin_gradient

# What is reported of each sample that the actor saw; the engine averages. `value_slope` returns what is added to it.
ACTOR_LOSS = ACTOR_METRICS


class TD3Settings(NamedTuple):
    """The numbers of the losses."""

    smoothing: np.float32  # deviation of the noise on the next action
    smoothing_limit: np.float32  # and the most of it


def td3_behaviour(size: int, correlation: float, write: Callable[..., Any]) -> Behaviour:
    """Act as the network says; `exploration` is the deviation of noise on top of that."""
    add = noise_adder(size, correlation)

    def act(output, mask, exploration, rng, noise, action):  # noqa: ARG001 - as for choices, which have a mask
        for k in range(size):
            action[k] = tanh(output[k])
        if exploration > 0.0:
            add(exploration, rng, noise, action)

    return Behaviour(uniform_draw(size), act, write)


def td3_loss(size: int) -> ActorCriticLoss:
    """The losses over actions of `size` numbers."""

    def dream(output, rng, settings, action):
        limit = settings.smoothing_limit
        for k in range(size):
            noise = settings.smoothing * random.normal(rng)
            noise = -limit if noise < -limit else (limit if noise > limit else noise)
            action[k] = within_reach(tanh(output[k]) + noise)
        return 0.0

    def target(values, reward, discount, log_probability, temperature):  # noqa: ARG001 - of a policy without chance
        # What follows a terminal state does not exist: not even an infinite value there may count.
        return reward + discount * least(values) if discount > 0.0 else reward

    def act_again(output, rng, settings, noise, action):  # noqa: ARG001 - nothing is drawn
        for k in range(size):
            action[k] = tanh(output[k])
        return 0.0

    def value_slope(values, gradient):
        gradient[0] = -1.0
        gradient[1] = 0.0
        return -values[0]

    def actor_gradient(
        output, noise, action, action_slope, log_probability, temperature, settings, gradient, metrics  # noqa: ARG001
    ):  # fmt: skip
        for k in range(size):
            gradient[k] = action_slope[k] * (1.0 - action[k] * action[k])
        metrics[ACTOR_LOSS] = 0.0

    def temperature_slope(log_probability, settings):  # noqa: ARG001 - there is no temperature to learn
        return 0.0

    return ActorCriticLoss(
        frozen_actor=True,
        dream=dream,
        target=target,
        critic_gradient=twin_gradient,
        act_again=act_again,
        value_slope=value_slope,
        actor_gradient=actor_gradient,
        learns_temperature=False,
        temperature_slope=temperature_slope,
    )
