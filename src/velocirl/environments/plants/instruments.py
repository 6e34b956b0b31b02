"""What valves, pipes and sensors do between a controller and a plant, alike in all plants.

Each is a scalar function without a branch, so that the loop over copies of a plant stays vectorised.
"""

from math import expm1, sqrt

import numpy as np

from velocirl import random

WORD = 0xFFFF  # sixteen bits
CENTRE = 2.0 * WORD  # the mean of the sum of four words
SPREAD = (WORD + 1) / sqrt(3.0)  # the standard deviation of that sum
ARRIVED = 1e-9  # what is this near to its target is there: the way on would lead through numbers that are slow
STRAYS = 4.0  # standard deviations that a disturbance may be away from its mean


def noise(rng):
    """A number of mean 0 and standard deviation 1, the sum of four uniform ones: nearly normal, never beyond 3.5."""
    bits = random.bits(rng)
    total = (bits & WORD) + ((bits >> 16) & WORD) + ((bits >> 32) & WORD) + (bits >> 48)
    return (np.float32(total) - CENTRE) / SPREAD


def drifted(value, mean, deviation, share, rng):
    """A disturbance one step later: autoregressive of first order, with this mean and standard deviation.

    `share` of its distance to the mean is forgotten in a step, see `share_of`.
    """
    moved = value + share * (mean - value) + deviation * sqrt(share * (2.0 - share)) * noise(rng)
    return clipped(moved, mean - STRAYS * deviation, mean + STRAYS * deviation)


def share_of(time_step, time_constant):
    """The share of its way that a first-order lag goes in a step, by the backward Euler method: stable, also for 0."""
    return time_step / (time_constant + time_step)


def lagged(value, target, share):
    """A first-order lag one step later, see `share_of`."""
    moved = value + share * (target - value)
    return moved if abs(target - moved) > ARRIVED else target


def relaxed(x):
    """Return (exp(x) - 1) / x for x <= 0: the mean, over a step, of a rate that decays by exp(x) in it."""
    decay = min(x, -1e-6)
    return expm1(decay) / decay


def shortfall(state, stock, steps):
    """Return what a stock has lost since the books were last closed, and 0 between closings, `steps` steps apart.

    So an episode ends with what it began with, or pays for it. `state` has `opening`, the stock then, and `elapsed`.
    """
    state.elapsed += 1
    due = state.elapsed >= steps
    missing = max(state.opening - stock, 0.0) if due else 0.0
    state.opening = stock if due else state.opening
    state.elapsed = 0 if due else state.elapsed
    return missing


def delayed(line, newest, steps):
    """What was given a number of steps ago, 0 to 4 and fractions; `line` holds the four values before the newest."""
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
    """The value within the range of a valve or a sensor."""
    return min(max(value, low), high)
