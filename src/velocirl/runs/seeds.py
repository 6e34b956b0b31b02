"""Statistics over the seeds of one training: mean return and its confidence interval, at the end and as a curve.

Independent of how the agents were trained: one after another, in processes, or together on one device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from velocirl.runs.curves.columns import clock, column
from velocirl.runs.intervals import CONFIDENCE, student_t
from velocirl.runs.metrics import RETURN, STEP, Row

Array = NDArray[np.float64]

METHOD = "Student t over seeds"
MOST_POINTS = 1000  # of an aggregated curve: more than the columns of an image


@dataclass(frozen=True)
class SeedResult:
    """One agent of a group: its seed, status and metrics."""

    seed: int
    status: str  # of its run, or "waiting" without a run
    rows: Sequence[Row]
    error: str = ""

    @property
    def steps(self) -> int:
        """Environment steps taken so far."""
        return int(self.rows[-1][STEP] or 0) if self.rows else 0

    @property
    def final_return(self) -> float | None:
        """The last mean return recorded; None without one."""
        return next((float(found) for row in reversed(self.rows) if (found := row.get(RETURN)) is not None), None)

    @property
    def seconds(self) -> float:
        """Seconds of training."""
        return float(clock(self.rows)[-1]) if self.rows else 0.0


class SeedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of the summary for one seed."""

    seed: int
    status: str
    steps: int
    final_return: float | None = msgspec.field(name="return")
    seconds: float
    error: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a group: the contents of summary.json. The mean excludes failed seeds."""

    format: Literal[1] = 1
    environment: str
    algorithm: str
    seeds: list[SeedSummary]
    averaged: int  # seeds that have a return and did not fail
    mean: float | None
    low: float | None
    high: float | None
    confidence: float = CONFIDENCE
    method: str = METHOD
    steps: int  # of all seeds together
    seconds: float
    steps_per_second: float


@dataclass(frozen=True)
class SeedCurve:
    """Mean return of several seeds at common steps, with its interval; for one seed the interval has width 0."""

    steps: Array
    mean: Array
    low: Array
    high: Array
    count: int


def summarise(environment: str, algorithm: str, results: Sequence[SeedResult], seconds: float) -> Summary:
    """Summarize the seeds of a group and their mean return; `seconds` is the total time."""
    returns = [one.final_return for one in results if one.status != "failed"]
    known = [value for value in returns if value is not None]
    mean, low, high = _interval(known)
    steps = sum(one.steps for one in results)
    seconds = max([seconds, *(one.seconds for one in results)])  # the time of a killed command was not counted
    return Summary(
        environment=environment,
        algorithm=algorithm,
        seeds=[
            SeedSummary(
                seed=one.seed,
                status=one.status,
                steps=one.steps,
                final_return=one.final_return,
                seconds=round(one.seconds, 3),
                error=one.error,
            )
            for one in results
        ],
        averaged=len(known),
        mean=mean,
        low=low,
        high=high,
        steps=steps,
        seconds=round(seconds, 3),
        steps_per_second=round(steps / max(seconds, 1e-9), 1),
    )


def aggregate(results: Sequence[SeedResult]) -> SeedCurve | None:
    """Compute the mean curve over the steps that all seeds have reached; None without such steps.

    Failed seeds and seeds without a return are omitted.
    """
    lines = [line for one in results if one.status != "failed" if len((line := _line(one.rows))[0])]
    common = aligned(lines, MOST_POINTS)
    if common is None:
        return None
    steps, returns = common
    mean, reach = mean_and_reach(returns)
    return SeedCurve(steps, mean, mean - reach, mean + reach, len(lines))


def aligned(lines: Sequence[tuple[Array, Array]], most: int) -> tuple[Array, Array] | None:
    """Interpolate lines (x, y) at x that all of them cover; None if there are none.

    Returns x of shape (points,) and y of shape (lines, points).
    """
    if not lines:
        return None
    first, last = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    common = np.unique(np.concatenate([x for x, _ in lines]))
    common = common[(common >= first) & (common <= last)]
    if not len(common):
        return None
    if len(common) > most:
        common = common[np.linspace(0, len(common) - 1, most).round().astype(int)]
    return common, np.stack([np.interp(common, x, y) for x, y in lines])


def mean_and_reach(values: Array) -> tuple[Array, Array]:
    """Return the mean over the first axis and the half-width of its 95% interval; for a single row, 0."""
    count = len(values)
    mean = values.mean(0)
    if count == 1:
        return mean, np.zeros_like(mean)
    return mean, student_t(count - 1) * values.std(0, ddof=1) / math.sqrt(count)


def _interval(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the mean and the ends of its interval; for a single value the ends are None."""
    if not values:
        return None, None, None
    mean, reach = (float(one[0]) for one in mean_and_reach(np.array(values)[:, None]))
    return (mean, mean - reach, mean + reach) if len(values) > 1 else (mean, None, None)


def _line(rows: Sequence[Row]) -> tuple[Array, Array]:
    """Return steps and returns of the rows that have a return."""
    returns = column(rows, RETURN)
    having = np.isfinite(returns)
    return column(rows, STEP)[having], returns[having]
