"""Positions of implementations below the machine's two limits: arithmetic and memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from velocirl.bench.machine.peaks import Peak, Peaks, Share, share_of_peak
from velocirl.bench.results import Measured, Report, Result


@dataclass(frozen=True)
class Point:
    """Implementation in the roofline: operations per byte, operations per second, and the limits above it."""

    benchmark: str
    contestant: str
    intensity: float
    operations_per_second: float
    peak: Peak
    share: Share


def units_per_second(result: Result, one: Measured) -> float | None:
    """Compute the median units of work per second."""
    middle = median(one.samples) if one.samples else 0.0
    if not 1e-300 < middle < 1e300:
        return None
    return middle if result.unit.more_is_better else 1.0 / middle


def share_in(result: Result, one: Measured, peaks: Peaks | None) -> Share | None:
    """Return the fraction of the machine's limit that an implementation reached; None if cost or limit are unknown."""
    per_second = units_per_second(result, one)
    if peaks is None or one.cost is None or per_second is None:
        return None
    share = share_of_peak(one.cost, per_second, peaks)
    return share if share is not None and math.isfinite(share.of_peak) else None


def points(report: Report) -> list[Point]:
    """Return our implementations with known arithmetic and known memory traffic."""
    found = []
    for result in report.results:
        for one in result.contestants:
            share, cost, per_second = share_in(result, one, report.peaks), one.cost, units_per_second(result, one)
            if share is None or cost is None or per_second is None or report.peaks is None or one.peer:
                continue
            peak = report.peaks.of(cost)
            if peak is not None and cost.operations and cost.bytes:
                intensity = cost.operations / cost.bytes
                found.append(Point(result.name, one.name, intensity, per_second * cost.operations, peak, share))
    return found
