"""The one place where the losses of soft actor-critic are written: for one sample, compiled for every target alike.

critics:      (Q_i(s, a) - y)^2 / 2,  y = r + discount (min Q_frozen(s', a') - temperature log pi(a'|s')),  a' ~ pi(s')
actor:        temperature log pi(a|s) - min Q(s, a),  a = tanh(mean + deviation * noise)
temperature:  -log(temperature) (log pi(a|s) + target entropy)
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from velocirl.engine import random
from velocirl.networks.squashed import (
    LOG_DEVIATION_HIGH,
    LOG_DEVIATION_LOW,
    held_log_deviation,
    squash,
    squashed_sampler,
)
from velocirl.training.action_noise import noise_adder, uniform_draw
from velocirl.training.off_policy import ACTOR_METRICS, ActorCriticLoss, Behaviour
from velocirl.training.twin_critics import least, twin_gradient

# What is reported of each sample that the actor saw; the engine averages. The value's part of the first is what
# `value_slope` returns, and is added to it.
ACTOR_LOSS, LOG_PROBABILITY, TEMPERATURE, TEMPERATURE_LOSS = range(ACTOR_METRICS, ACTOR_METRICS + 4)


class SACSettings(NamedTuple):
    """The numbers of the losses."""

    target_entropy: np.float32


def sac_settings(target_entropy: float | None, size: int) -> SACSettings:
    """The numbers of the losses; without a target, the entropy is to be -1 for each number of an action."""
    return SACSettings(np.float32(-size if target_entropy is None else target_entropy))


def sac_behaviour(size: int, correlation: float, write: Callable[..., Any]) -> Behaviour:
    """Draw from the policy; `exploration` is the deviation of noise on top of that."""
    sample, add = squashed_sampler(size), noise_adder(size, correlation)

    def act(output, mask, exploration, rng, noise, action):  # noqa: ARG001 - as for choices, which have a mask
        sample(output, rng, action)
        if exploration > 0.0:
            add(exploration, rng, noise, action)

    return Behaviour(uniform_draw(size), act, write)


def sac_loss(size: int, learns_temperature: bool) -> ActorCriticLoss:
    """The losses over actions of `size` numbers."""
    sample = squashed_sampler(size)

    def dream(output, rng, settings, action):  # noqa: ARG001 - as for TD3, which smooths
        return sample(output, rng, action)

    def target(values, reward, discount, log_probability, temperature):
        # What follows a terminal state does not exist: not even an infinite value there may count.
        if discount > 0.0:
            return reward + discount * (least(values) - temperature * log_probability)
        return reward

    def act_again(output, rng, settings, noise, action):  # noqa: ARG001
        log_probability = 0.0
        for k in range(size):
            noise[k] = random.normal(rng)
            number, density = squash(output[k], output[size + k], noise[k])
            action[k] = number
            log_probability += density
        return log_probability

    def value_slope(values, gradient):
        first = values[0] < values[1]
        gradient[0] = -1.0 if first else 0.0
        gradient[1] = 0.0 if first else -1.0
        return -least(values)

    def actor_gradient(
        output, noise, action, action_slope, log_probability, temperature, settings, gradient, metrics
    ):  # fmt: skip
        """With u = mean + deviation * noise and a = tanh(u), the slope of a is 1 - a^2, that of log pi follows.

        d log pi / d mean = 2 a,  d log pi / d log deviation = 2 a (u - mean) - 1
        """
        for k in range(size):
            log_deviation = output[size + k]
            outside = log_deviation < LOG_DEVIATION_LOW or log_deviation > LOG_DEVIATION_HIGH
            reach = exp(held_log_deviation(log_deviation)) * noise[k]
            slope = action_slope[k] * (1.0 - action[k] * action[k]) + temperature * (2.0 * action[k])
            gradient[k] = slope
            gradient[size + k] = 0.0 if outside else slope * reach - temperature
        metrics[ACTOR_LOSS] = temperature * log_probability
        metrics[LOG_PROBABILITY] = log_probability
        metrics[TEMPERATURE] = temperature
        metrics[TEMPERATURE_LOSS] = 0.0
        if learns_temperature:
            metrics[TEMPERATURE_LOSS] = -log(temperature) * (log_probability + settings.target_entropy)

    def temperature_slope(log_probability, settings):
        return -(log_probability + settings.target_entropy)

    return ActorCriticLoss(
        frozen_actor=False,
        dream=dream,
        target=target,
        critic_gradient=twin_gradient,
        act_again=act_again,
        value_slope=value_slope,
        actor_gradient=actor_gradient,
        learns_temperature=learns_temperature,
        temperature_slope=temperature_slope,
    )
