"""Confidence intervals of counts and means over episodes or seeds, without a statistics library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
HALVINGS = 100  # bisection steps: ends below the spacing of floating-point numbers


@cache
def student_t(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the quantile of Student's t with `degrees` of freedom: an interval's half-width in standard errors."""
    # P(|T| < t) has a closed form in the angle whose tangent is t / sqrt(degrees) (Abramowitz and Stegun, 26.7.3-4). It
    # increases with the angle, so bisection finds it.
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        angle = (low + high) / 2
        low, high = (angle, high) if _within(angle, degrees) < confidence else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    cosine, odd = math.cos(angle), degrees % 2
    term = total = cosine if odd else 1.0
    for k in range(2 + odd, degrees, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    if odd:
        return 2 / math.pi * (angle + (math.sin(angle) * total if degrees > 1 else 0.0))
    return math.sin(angle) * total


def exact_share(count: int, episodes: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact binomial interval of a share seen in `count` of `episodes` (Clopper and Pearson, 1934).

    It covers the true share with a probability of at least `confidence`. The upper end for 0 of `episodes` is above 0.
    """
    if not 0 <= count <= episodes or episodes < 1:
        raise ValueError(f"count={count} of episodes={episodes}: count from 0 to the number of episodes, at least 1")
    tail = (1.0 - confidence) / 2
    return 1.0 - _upper(episodes - count, episodes, tail), _upper(count, episodes, tail)


def _upper(count: int, episodes: int, tail: float) -> float:
    """Return the share at which at most `count` are seen with probability `tail`."""
    if count == episodes:
        return 1.0
    seen = np.arange(count + 1)
    steps = np.log((episodes - seen[:-1]) / (seen[:-1] + 1.0))
    choices = np.concatenate(([0.0], np.cumsum(steps)))  # logarithms of binomial coefficients
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        share = (low + high) / 2
        if share in (low, high):
            break
        terms = choices + seen * math.log(share) + (episodes - seen) * math.log1p(-share)
        low, high = (share, high) if np.exp(terms).sum() > tail else (low, share)
    return high


def mean_cost(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean of costs, many of which may be 0, and the ends of its 95% interval.

    The interval is the product of two 97.5% intervals: the exact one of the share of nonzero values, and Student's t
    for their mean. With fewer than two nonzero values the upper end is infinite, as their size is unknown. NaN counts
    as infinite.
    """
    array = np.asarray(values, np.float64)
    array = np.where(np.isnan(array), np.inf, array)
    met = array[array != 0.0]
    mean = float(array.mean())
    if len(met) < 2 or not np.isfinite(met).all():
        return mean, 0.0, math.inf
    confidence = 1.0 - (1.0 - CONFIDENCE) / 2
    reach = student_t(len(met) - 1, confidence) * float(met.std(ddof=1)) / math.sqrt(len(met))
    shares = exact_share(len(met), len(array), confidence)
    least, most = float(met.mean()) - reach, float(met.mean()) + reach
    if (met > 0.0).all():
        least = max(least, 0.0)
    return mean, min(share * least for share in shares), max(share * most for share in shares)
