"""Running means and variances, by which observations and rewards are brought to a common scale."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-8
# A deviation of at most this share of the mean is rounding of single precision, not a change: 16 of its last digits.
RESOLUTION = 16 * float(np.finfo(np.float32).eps)
REWARD_LIMIT = 10.0  # of a normalised reward


class RunningMoments:
    """Mean and variance of all that was seen so far, added batch by batch (Chan, Golub and LeVeque, 1979)."""

    def __init__(self, size: int) -> None:
        self.state = np.zeros((3, size), np.float64)  # count, mean, sum of squared deviations; one column each

    def add(self, sums: NDArray[np.float64], squares: NDArray[np.float64], count: int) -> None:
        """Add a batch, known by its sums."""
        if count == 0:
            return
        before, mean, deviations = self.state
        self.state[:] = add_to_moments(before, mean, deviations, sums, squares, count)

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean, 0 before anything was seen."""
        return self.state[1]

    @property
    def inverse_deviation(self) -> NDArray[np.float64]:
        """One over the standard deviation, 1 of what is constant and before anything was seen."""
        count, mean, deviations = self.state
        return 1.0 / np.sqrt(variance_to_divide_by(np.maximum(count, 1), mean, deviations))


def add_to_moments(before, mean, deviations, total, squares, count):
    """Count, mean and squared deviations after a batch that is known by its sums; for numbers and arrays alike."""
    batch_mean = total / count
    spread = squares - total * batch_mean
    spread = 0.5 * (spread + abs(spread))  # rounding may have made it negative
    both = before + count
    shift = batch_mean - mean
    return both, mean + shift * (count / both), deviations + spread + shift * shift * (before * count / both)


def is_constant(mean, variance):
    """Return whether numbers differ by rounding alone; for numbers and arrays alike."""
    least = RESOLUTION * mean
    return variance <= least * least


def variance_to_divide_by(count, mean, deviations):
    """The variance of numbers, or 1 where they are constant: those are only centred, since nothing tells their scale.

    For numbers and arrays alike.
    """
    variance = deviations / count
    constant = is_constant(mean, variance)
    return constant * 1.0 + (1.0 - constant) * (variance + EPSILON)


def take_in(j, r, t, moments, sums, count, centre, inverse_scale):  # noqa: ARG001 - as every function of an index
    """Let number j of observations be normalised by what a rollout of `count` steps saw; for any device."""
    moments[0, j], moments[1, j], moments[2, j] = add_to_moments(
        moments[0, j], moments[1, j], moments[2, j], sums[0, j], sums[1, j], np.float64(count)
    )
    centre[j] = moments[1, j]
    inverse_scale[j] = 1.0 / sqrt(variance_to_divide_by(moments[0, j], moments[1, j], moments[2, j]))


def take_in_rewards(s, r, t, moments, sums, count, scale):  # noqa: ARG001
    """Let the rewards of agent s be scaled by what a rollout of `count` steps gave; for any device."""
    moments[s, 0], moments[s, 1], moments[s, 2] = add_to_moments(
        moments[s, 0], moments[s, 1], moments[s, 2], sums[s, 0], sums[s, 1], np.float64(count)
    )
    scale[s].reward_scale = 1.0 / sqrt(variance_to_divide_by(moments[s, 0], moments[s, 1], moments[s, 2]))
