"""Behavior of valves, pipes and sensors between a controller and a plant, shared by all plants.

Each is a scalar function without a branch, so that the loop over a fleet's plants stays vectorized.
"""

from math import expm1, sqrt

import numpy as np

from velocirl import random

WORD = 0xFFFF  # sixteen bits
CENTRE = 2.0 * WORD  # mean of the sum of four words
SPREAD = (WORD + 1) / sqrt(3.0)  # standard deviation of that sum
ARRIVED = 1e-9  # values this close to their target are set to it, to avoid slow denormal numbers
STRAYS = 4.0  # standard deviations by which a disturbance may differ from its mean


def noise(rng):
    """Sample a number with mean 0 and standard deviation 1: the sum of four uniform ones, nearly normal, within 3.5."""
    bits = random.bits(rng)
    total = (bits & WORD) + ((bits >> 16) & WORD) + ((bits >> 32) & WORD) + (bits >> 48)
    return (np.float32(total) - CENTRE) / SPREAD


def drifted(value, mean, deviation, share, rng):
    """Return a disturbance one step later: a first-order autoregressive process.

    Each step removes the fraction `share` of its distance to the mean, see `share_of`.
    """
    moved = value + share * (mean - value) + deviation * sqrt(share * (2.0 - share)) * noise(rng)
    return clipped(moved, mean - STRAYS * deviation, mean + STRAYS * deviation)


def share_of(time_step, time_constant):
    """Return a first-order lag's fraction of the way per step, by the backward Euler method: stable, also for 0."""
    return time_step / (time_constant + time_step)


def lagged(value, target, share):
    """Return a first-order lag's output one step later, see `share_of`."""
    moved = value + share * (target - value)
    return moved if abs(target - moved) > ARRIVED else target


def relaxed(x):
    """Return (exp(x) - 1) / x for x <= 0: the mean, over a step, of a rate that decays by exp(x) in it."""
    decay = min(x, -1e-6)
    return expm1(decay) / decay


def shortfall(state, stock, steps):
    """Return a stock's loss since `opening` was last recorded, every `steps` steps, and 0 between.

    An episode thus ends with the stock that it began with, or pays for it. `state` has `opening`, the recorded stock,
    and `elapsed`, the steps since.
    """
    state.elapsed += 1
    due = state.elapsed >= steps
    missing = max(state.opening - stock, 0.0) if due else 0.0
    state.opening = stock if due else state.opening
    state.elapsed = 0 if due else state.elapsed
    return missing


def delayed(line, newest, steps):
    """Return the value from 0 to 4 steps ago, fractions included; `line` holds the four values before the newest."""
    older = newest
    value = newest
    for k in range(4):
        value += min(max(steps - k, 0.0), 1.0) * (line[k] - older)
        older = line[k]
    for k in range(3, 0, -1):
        line[k] = line[k - 1]
    line[0] = newest
    return value


def clipped(value, low, high):
    """Clip a value to the range of a valve or a sensor."""
    return min(max(value, low), high)
