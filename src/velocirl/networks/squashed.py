"""Actions within [-1, 1] by the hyperbolic tangent: of a normal number, or of the network's output itself.

A squashed Gaussian (Haarnoja et al., 2018) reads its output row as means and then logarithms of deviations, held within
[-20, 2]. With u = mean + deviation * noise and a = tanh(u), and all numbers independent:

log pi(a) = sum of log N(noise) - log deviation - log(1 - tanh(u)^2)
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, tanh
from typing import Any

import numpy as np

from velocirl.engine import random
from velocirl.networks.heads import Head, gaussian, normal_log_density

LOG_DEVIATION_LOW, LOG_DEVIATION_HIGH = -20.0, 2.0
LOG_TWO = 0.6931471805599453


def held_log_deviation(value):
    """A logarithm of a deviation within its bounds; a NaN stays one."""
    if value < LOG_DEVIATION_LOW:
        return LOG_DEVIATION_LOW
    return LOG_DEVIATION_HIGH if value > LOG_DEVIATION_HIGH else value


def log_squash_slope(before):
    """log(1 - tanh(u)^2) = 2 (log 2 - |u| - log(1 + exp(-2 |u|))), which is finite however large u is."""
    size = abs(before)
    return 2.0 * (LOG_TWO - size - log(1.0 + exp(-2.0 * size)))


def squash(mean, log_deviation, noise):
    """The action that this noise makes, and the logarithm of its density."""
    held = held_log_deviation(log_deviation)
    before = mean + exp(held) * noise
    return tanh(before), normal_log_density(noise, held) - log_squash_slope(before)


def squashed_sampler(size: int) -> Callable[..., Any]:
    """`sample(output, rng, action) -> log-probability`: draws an action."""

    def sample(output, rng, action):
        log_probability = 0.0
        for k in range(size):
            number, density = squash(output[k], output[size + k], random.normal(rng))
            action[k] = number
            log_probability += density
        return log_probability

    return sample


def squashed_gaussian(size: int) -> Head:
    """How an agent acts by a squashed Gaussian; `evaluate` and `backward` are those of the Gaussian beneath."""
    draw = squashed_sampler(size)

    def sample(output, mask, rng, action):  # noqa: ARG001 - every head has the same signatures
        return draw(output, rng, action)

    return gaussian(size)._replace(name="squashed_gaussian", sample=sample, mode=_tangent(size))


def squashed_value(size: int, noise: float) -> Head:
    """How an agent acts by one action alone: the tangent of the output, with white noise where it draws."""

    def sample(output, mask, rng, action):  # noqa: ARG001 - every head has the same signatures
        for k in range(size):
            action[k] = within_reach(tanh(output[k]) + noise * random.normal(rng))
        return np.float32(0)

    return gaussian(size)._replace(name="squashed_value", outputs=size, sample=sample, mode=_tangent(size))


def within_reach(number):
    """A number held within [-1, 1]; a NaN stays one."""
    return -1.0 if number < -1.0 else (1.0 if number > 1.0 else number)


def _tangent(size: int) -> Callable[..., Any]:
    def mode(output, mask, action):  # noqa: ARG001 - every head has the same signatures
        for k in range(size):
            action[k] = tanh(output[k])

    return mode
