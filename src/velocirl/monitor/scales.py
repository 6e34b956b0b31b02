"""Chart scales: linear and logarithmic mappings from values to positions, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MOST = 1e300  # charts end near the largest floating-point numbers


@dataclass(frozen=True)
class Scale:
    """Mapping of values from `low` to `high` to positions from `begin` to `end`; values outside are clipped."""

    low: float
    high: float
    begin: float = 0.0
    end: float = 100.0
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        if math.isnan(value):
            return self.begin
        value = min(max(value, self.low), self.high)
        low, high, at = (math.log(one) if self.logarithmic else one for one in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.0
        return self.begin + share * (self.end - self.begin)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round values on the scale, about `about` of them."""
        return _decades(self.low, self.high, about) if self.logarithmic else _round(self.low, self.high, about)


def linear(values: Iterable[float], begin: float, end: float, *, zero: bool = False) -> Scale:
    """Build a linear scale that contains all finite values, with some margin, or includes zero."""
    finite = [min(max(value, -MOST), MOST) for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = 0.0 if zero else 0.08 * (high - low) or 0.05 * abs(high)
    low, high = low - room, high + room
    return Scale(low, high if high > low else low + 1.0, begin, end)


def logarithmic(values: Iterable[float], begin: float, end: float) -> Scale:
    """Build a scale from the power of ten below all positive values to the one above them."""
    finite = [min(max(value, 1.0 / MOST), MOST) for value in values if math.isfinite(value) and value > 0.0]
    low = 10.0 ** math.floor(math.log10(min(finite, default=1.0)) + 1e-9)
    high = 10.0 ** math.ceil(math.log10(max(finite, default=10.0)) - 1e-9)
    return Scale(low, high if high > low else 10.0 * low, begin, end, logarithmic=True)


def _round(low: float, high: float, about: int) -> list[float]:
    width = (high - low) / max(about, 1)
    if not (math.isfinite(width) and width > 0.0):
        return []
    power = 10.0 ** math.floor(math.log10(width))
    if power <= 0.0:  # underflow
        return []
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= width * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)] if last - first <= 4 * about else []


def _decades(low: float, high: float, about: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first) / max(about, 1)))
    return [10.0**power for power in range(first, last + 1, every)]
