"""Statistics of samples: medians, bootstrap intervals and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 4000
# If the interquartile range exceeds this fraction of the median, another program was using the machine.
NOISY_FROM = 0.10


@dataclass(frozen=True)
class Estimate:
    """Median and the bounds of its bootstrap interval."""

    median: float
    low: float
    high: float


def estimate(samples: Sequence[float]) -> Estimate:
    """Compute the median of samples with its percentile bootstrap interval; deterministic for equal samples."""
    values = np.asarray(samples, np.float64)
    if not values.size or not np.isfinite(values).all():
        raise ValueError(f"an estimate needs finite samples, got {list(samples)}")
    chosen = np.random.default_rng(0).integers(0, values.size, (RESAMPLES, values.size))
    medians = np.median(values[chosen], axis=1)
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(medians, (tail, 100.0 - tail))
    return Estimate(float(np.median(values)), float(low), float(high))


def spread(samples: Sequence[float]) -> float:
    """Compute the interquartile range as a fraction of the median: 0 for samples that agree."""
    low, middle, high = np.percentile(np.asarray(samples, np.float64), (25, 50, 75))
    return float((high - low) / abs(middle)) if middle else float(high > low)
