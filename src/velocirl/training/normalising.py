"""Running means and variances, by which observations and rewards are brought to a common scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-8


class RunningMoments:
    """Mean and variance of all that was seen so far, added batch by batch (Chan, Golub and LeVeque, 1979)."""

    def __init__(self, size: int) -> None:
        self.state = np.zeros((3, size), np.float64)  # count, mean, sum of squared deviations; one column each

    def add(self, sums: NDArray[np.float64], squares: NDArray[np.float64], count: int) -> None:
        """Add a batch, known by its sums."""
        if count == 0:
            return
        before, mean, deviations = self.state
        batch_mean = sums / count
        batch_deviations = np.maximum(squares - sums * batch_mean, 0.0)
        total = before + count
        shift = batch_mean - mean
        deviations += batch_deviations + shift**2 * (before * count / total)
        mean += shift * (count / total)
        before[:] = total

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
