"""Running means and variances that normalize observations and scale rewards."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-8
# A standard deviation of at most this fraction of the mean is single-precision rounding, not variation: 16 epsilons.
RESOLUTION = 16 * float(np.finfo(np.float32).eps)
REWARD_LIMIT = 10.0  # limit of a normalized reward


class RunningMoments:
    """Running mean and variance, updated batch by batch (Chan, Golub and LeVeque, 1979)."""

    def __init__(self, size: int) -> None:
        self.state = np.zeros((3, size), np.float64)  # count, mean, sum of squared deviations; one column each

    def add(self, sums: NDArray[np.float64], squares: NDArray[np.float64], count: int) -> None:
        """Add a batch, given as sums and sums of squares over `count` rows."""
        if count == 0:
            return
        before, mean, deviations = self.state
        self.state[:] = add_to_moments(before, mean, deviations, sums, squares, count)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean; 0 before the first batch."""
        return self.state[1]

    @property
    def inverse_deviation(self) -> NDArray[np.float64]:
        """Inverse standard deviation; 1 for constant entries and before the first batch."""
        count, mean, deviations = self.state
        return 1.0 / np.sqrt(variance_to_divide_by(np.maximum(count, 1), mean, deviations))


def add_to_moments(before, mean, deviations, total, squares, count):
    """Return count, mean and squared deviations after adding a batch given as sums; for numbers and arrays alike."""
    batch_mean = total / count
    spread = squares - total * batch_mean
    spread = 0.5 * (spread + abs(spread))  # rounding may make it negative
    both = before + count
    shift = batch_mean - mean
    return both, mean + shift * (count / both), deviations + spread + shift * shift * (before * count / both)


def is_constant(mean, variance):
    """Return whether numbers differ only by rounding; for numbers and arrays alike."""
    least = RESOLUTION * mean
    return variance <= least * least


def variance_to_divide_by(count, mean, deviations):
    """Return the variance of numbers, or 1 if they are constant: those are only centered, since their scale is unknown.

    For numbers and arrays alike.
    """
    variance = deviations / count
    constant = is_constant(mean, variance)
    return constant * 1.0 + (1.0 - constant) * (variance + EPSILON)


def take_in(j, r, t, moments, sums, count, centre, inverse_scale):  # noqa: ARG001 - as every function of an index
    """Update the normalization of observation entry j with a rollout of `count` steps; for any device."""
    moments[0, j], moments[1, j], moments[2, j] = add_to_moments(
        moments[0, j], moments[1, j], moments[2, j], sums[0, j], sums[1, j], np.float64(count)
    )
    centre[j] = moments[1, j]
    inverse_scale[j] = 1.0 / sqrt(variance_to_divide_by(moments[0, j], moments[1, j], moments[2, j]))


def take_in_rewards(s, r, t, moments, sums, count, scale):  # noqa: ARG001
    """Update the reward scale of agent s with a rollout of `count` steps; for any device."""
    moments[s, 0], moments[s, 1], moments[s, 2] = add_to_moments(
        moments[s, 0], moments[s, 1], moments[s, 2], sums[s, 0], sums[s, 1], np.float64(count)
    )
    scale[s].reward_scale = 1.0 / sqrt(variance_to_divide_by(moments[s, 0], moments[s, 1], moments[s, 2]))
