"""Running means and variances, by which observations and rewards are brought to a common scale."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-8
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
        """One over the standard deviation, 1 before anything was seen."""
        count, _, deviations = self.state
        variance = np.where(count > 0, deviations / np.maximum(count, 1), 1.0)
        return 1.0 / np.sqrt(variance + EPSILON)


def add_to_moments(before, mean, deviations, total, squares, count):
    """Count, mean and squared deviations after a batch that is known by its sums; for numbers and arrays alike."""
    batch_mean = total / count
    spread = squares - total * batch_mean
    spread = 0.5 * (spread + abs(spread))  # rounding may have made it negative
    both = before + count
    shift = batch_mean - mean
    return both, mean + shift * (count / both), deviations + spread + shift * shift * (before * count / both)


def take_in(j, r, t, moments, sums, count, centre, inverse_scale):  # noqa: ARG001 - as every function of an index
    """Let number j of observations be normalised by what a rollout of `count` steps saw; for any device."""
    moments[0, j], moments[1, j], moments[2, j] = add_to_moments(
        moments[0, j], moments[1, j], moments[2, j], sums[0, j], sums[1, j], np.float64(count)
    )
    centre[j] = moments[1, j]
    inverse_scale[j] = 1.0 / sqrt(moments[2, j] / moments[0, j] + EPSILON)


def take_in_rewards(s, r, t, moments, sums, count, scale):  # noqa: ARG001
    """Let the rewards of agent s be scaled by what a rollout of `count` steps gave; for any device."""
    moments[s, 0], moments[s, 1], moments[s, 2] = add_to_moments(
        moments[s, 0], moments[s, 1], moments[s, 2], sums[s, 0], sums[s, 1], np.float64(count)
    )
    scale[s].reward_scale = 1.0 / sqrt(moments[s, 2] / moments[s, 0] + EPSILON)
