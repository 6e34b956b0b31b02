"""Actions within [-1, 1] by tanh: of a normal sample, or of the network's output itself.

A squashed Gaussian (Haarnoja et al., 2018) reads its output row as means and then log standard deviations, clipped to
[-20, 2]. With u = mean + deviation * noise and a = tanh(u), and all numbers independent:

log pi(a) = sum of log N(noise) - log deviation - log(1 - tanh(u)^2)
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt, tanh
from typing import Any

import numpy as np

from velocirl.engine import random
from velocirl.networks.heads import Head, bounded_log_deviation, gaussian, normal_log_density

LOG_DEVIATION_LOW, LOG_DEVIATION_HIGH = -20.0, 2.0
LOG_TWO = 0.6931471805599453


def held_log_deviation(value):
    """Clip a log standard deviation to its bounds; NaN stays NaN."""
    if value < LOG_DEVIATION_LOW:
        return LOG_DEVIATION_LOW
    return LOG_DEVIATION_HIGH if value > LOG_DEVIATION_HIGH else value


def log_squash_slope(before):
    """Return log(1 - tanh(u)^2) = 2 (log 2 - |u| - log(1 + exp(-2 |u|))), which is finite for every u."""
    size = abs(before)
    return 2.0 * (LOG_TWO - size - log(1.0 + exp(-2.0 * size)))


def squash(mean, log_deviation, noise):
    """Return the action for this noise, and its log-density."""
    held = held_log_deviation(log_deviation)
    before = mean + exp(held) * noise
    return tanh(before), normal_log_density(noise, held) - log_squash_slope(before)


def sample(output, rng, action):
    """Sample an action. Returns its log-probability."""
    log_probability, size = 0.0, len(action)
    for k in range(size):
        number, density = squash(output[k], output[size + k], random.normal(rng))
        action[k] = number
        log_probability += density
    return log_probability


def sample_keeping_noise(output, rng, action, noise):
    """Sample an action and store its noise. Returns the log-probability."""
    log_probability, size = 0.0, len(action)
    for k in range(size):
        noise[k] = random.normal(rng)
        number, density = squash(output[k], output[size + k], noise[k])
        action[k] = number
        log_probability += density
    return log_probability


def gradient(output, action, noise, slope, temperature, into):
    """Write d(temperature log pi(a) + loss)/d(output), with `slope` = d(loss)/da, a = tanh(mean + deviation * noise).

    With u = mean + deviation * noise: d log pi / d mean = 2 a,  d log pi / d log deviation = 2 a (u - mean) - 1
    """
    size = len(action)
    for k in range(size):
        log_deviation = output[size + k]
        outside = log_deviation < LOG_DEVIATION_LOW or log_deviation > LOG_DEVIATION_HIGH
        reach = exp(held_log_deviation(log_deviation)) * noise[k]
        total = slope[k] * (1.0 - action[k] * action[k]) + temperature * (2.0 * action[k])
        into[k] = total
        into[size + k] = 0.0 if outside else total * reach - temperature


def add_noise(deviation, correlation, rng, noise, action):
    """Add noise with correlation `correlation` from one step to the next; clip the action to [-1, 1].

    x' = c x + sqrt(1 - c^2) deviation * normal, which has standard deviation `deviation` at every step, whatever c is;
    c = 0 is white noise. `noise` holds x.
    """
    fresh = sqrt(1.0 - correlation * correlation) * deviation
    for k in range(len(action)):
        noise[k] = correlation * noise[k] + fresh * random.normal(rng)
        action[k] = within_reach(action[k] + noise[k])


def smaller(values):
    """Return the smaller of two values, to reduce overestimation (Fujimoto et al., 2018); NaN is passed on."""
    return values[0] if values[0] < values[1] or values[0] != values[0] else values[1]


def squashed_gaussian(size: int) -> Head:
    """Return the head that acts by a squashed Gaussian; `evaluate` and `backward` are the underlying Gaussian's."""

    def draw_by_output(output, mask, rng, action):  # noqa: ARG001 - every head has the same signatures
        return sample(output, rng, action)

    return gaussian(size)._replace(name="squashed_gaussian", sample=draw_by_output, mode=_tangent(size))


def squashed_value(size: int, noise: float) -> Head:
    """Return the head that acts by the tanh of the output, with white noise added when it samples."""

    def disturb(output, mask, rng, action):  # noqa: ARG001 - every head has the same signatures
        for k in range(size):
            action[k] = within_reach(tanh(output[k]) + noise * random.normal(rng))
        return np.float32(0)

    return gaussian(size)._replace(name="squashed_value", outputs=size, sample=disturb, mode=_tangent(size))


def gaussian_within(size: int) -> Head:
    """Return the head that acts by a Gaussian around tanh of the output, clipped to [-1, 1].

    The log-probability refers to the number before clipping.
    """

    def draw_about_tangent(output, mask, rng, action):  # noqa: ARG001 - every head has the same signatures
        log_probability = 0.0
        for k in range(size):
            log_deviation, noise = bounded_log_deviation(output[size + k]), random.normal(rng)
            action[k] = within_reach(tanh(output[k]) + exp(log_deviation) * noise)
            log_probability += normal_log_density(noise, log_deviation)
        return log_probability

    return gaussian(size)._replace(name="gaussian_within", sample=draw_about_tangent, mode=_tangent(size))


def within_reach(number):
    """Clip a number to [-1, 1]; NaN stays NaN."""
    return -1.0 if number < -1.0 else (1.0 if number > 1.0 else number)


def _tangent(size: int) -> Callable[..., Any]:
    def mode(output, mask, action):  # noqa: ARG001 - every head has the same signatures
        for k in range(size):
            action[k] = tanh(output[k])

    return mode
