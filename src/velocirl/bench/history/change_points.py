"""Change-point detection: permanent changes of a series' level, with index, ratio and significance.

Optimal partitioning proposes change points. Two permutation tests, each in the window between a point's neighbors, keep
those that neither noise nor a slow drift explains. Steps are measured in logarithms, so they are ratios.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from velocirl.bench.statistics import CONFIDENCE, RESAMPLES, Estimate

Values = NDArray[np.float64]

FEWEST_OF_A_LEVEL = 3  # one or two outlying runs are no level
FEWEST_RUNS = 12  # with fewer, not even a perfect step is distinguishable from chance at this significance
SIGNIFICANCE = 0.01
PERMUTATIONS = 999
PENALTY = 2.0  # per additional level, in noise² log n: low, since the tests decide
REACH, OUTLYING = 2, 4.0  # an outlier is further from the median of its neighbors than this many times the noise
NORMAL_DIFFERENCE = 0.6745 * math.sqrt(2.0)  # median of |a - b| for two normal variables with standard deviation 1


@dataclass(frozen=True)
class Step:
    """Change of level: first run of the new level, ratio of new to old level, and the larger of two p-values."""

    place: int
    ratio: Estimate
    p_value: float


def find_steps(figures: Sequence[float]) -> list[Step]:
    """Find the steps in a series of positive values, oldest first; deterministic for equal values."""
    if len(figures) < FEWEST_RUNS:
        return []
    raw = np.asarray(figures, np.float64)
    if not (np.isfinite(raw).all() and (raw > 0.0).all()):
        raise ValueError("steps are ratios, so figures must be positive and finite")
    logs = np.log(raw)
    values = without_outliers(logs)
    random = np.random.default_rng(0)
    places = partition(values, PENALTY * noise(logs) ** 2 * math.log(len(values)))
    while places:
        edges = [0, *places, len(values)]
        tested = [_test(values[edges[i] : edges[i + 2]], random) for i in range(len(places))]
        weakest = int(np.argmax(tested))
        if tested[weakest] <= SIGNIFICANCE:
            return [_step(logs, edges, i, p_value) for i, p_value in enumerate(tested)]
        del places[weakest]
        places = _settled(values, places)
    return []


def noise(values: Values) -> float:
    """Estimate the standard deviation between consecutive runs, robust to a few steps and outliers."""
    return float(np.median(np.abs(np.diff(values)))) / NORMAL_DIFFERENCE


def without_outliers(values: Values) -> Values:
    """Replace each outlier by the median of its neighbors; levels are preserved."""
    last = len(values) - 2 * REACH - 1  # at both ends the window is as wide, so that two runs cannot outvote it
    starts = [min(max(i - REACH, 0), last) for i in range(len(values))]
    middles = np.median([values[start : start + 2 * REACH + 1] for start in starts], axis=1)
    return np.where(np.abs(values - middles) > OUTLYING * noise(values), middles, values)


def partition(values: Values, penalty: float) -> list[int]:
    """Return the start indices of all levels but the first, for the lowest penalized squared error."""
    count = len(values)
    penalty = max(penalty, 1e-12 * float(values.var()) * count + 1e-300)  # on ties, the fewest levels
    centred = values - values.mean()
    sums, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (centred, centred**2))
    best, previous = np.full(count + 1, np.inf), np.zeros(count + 1, np.int64)
    best[0] = -penalty
    for end in range(FEWEST_OF_A_LEVEL, count + 1):
        begin = np.arange(end - FEWEST_OF_A_LEVEL + 1)
        within = squares[end] - squares[begin] - (sums[end] - sums[begin]) ** 2 / (end - begin)
        costs = best[begin] + np.maximum(within, 0.0) + penalty
        previous[end] = np.argmin(costs)
        best[end] = costs[previous[end]]
    places, end = [], int(previous[count])
    while end:
        places.append(end)
        end = int(previous[end])
    return places[::-1]


def step_gains(rows: Values) -> Values:
    """Compute the reduction of each row's squared error (rows, runs) by one step, for each possible step index."""
    runs = rows.shape[1]
    sums = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)[
        :, FEWEST_OF_A_LEVEL - 1 : runs - FEWEST_OF_A_LEVEL
    ]
    before = np.arange(FEWEST_OF_A_LEVEL, runs - FEWEST_OF_A_LEVEL + 1)
    return sums**2 * (runs / (before * (runs - before)))


def _test(window: Values, random: np.random.Generator) -> float:
    """Return the larger of two p-values: against the hypothesis of no change, and against a drift.

    For the second, noise is shuffled around a fitted line, and a step must improve on the line by that much more.
    """
    time = np.arange(len(window)) - (len(window) - 1) / 2
    slope = (window @ time) / (time @ time)
    line = window.mean() + slope * time

    def beyond_line(rows: Values) -> Values:
        return step_gains(rows).max(axis=1) - (rows @ time) ** 2 / (time @ time)

    flat = _p_value(step_gains(window[None]).max(), step_gains(_dealt(window, random)).max(axis=1), window)
    if flat > SIGNIFICANCE:
        return flat
    drift = _p_value(beyond_line(window[None])[0], beyond_line(line + _dealt(window - line, random)), window)
    return max(flat, drift)


def _dealt(values: Values, random: np.random.Generator) -> Values:
    """Return random permutations of the values, (permutations, runs)."""
    return random.permuted(np.broadcast_to(values, (PERMUTATIONS, len(values))), axis=1)


def _p_value(found: float, by_chance: Values, window: Values) -> float:
    rounding = 1e-9 * float(window.var()) * len(window)
    return float((1 + np.sum(by_chance >= found - rounding)) / (1 + len(by_chance)))


def _settled(values: Values, places: list[int]) -> list[int]:
    """Move each change point to its best index between its neighbors, after one of them was removed."""
    places = list(places)
    for i in range(len(places)):
        edges = [0, *places, len(values)]
        window = values[edges[i] : edges[i + 2]]
        places[i] = edges[i] + FEWEST_OF_A_LEVEL + int(step_gains(window[None])[0].argmax())
    return places


def _step(logs: Values, edges: list[int], i: int, p_value: float) -> Step:
    """Build a step: the ratio of its two levels' medians with a bootstrap interval."""
    before, after = logs[edges[i] : edges[i + 1]], logs[edges[i + 1] : edges[i + 2]]
    random = np.random.default_rng(0)
    medians = [
        np.median(part[random.integers(0, len(part), (RESAMPLES, len(part)))], axis=1) for part in (after, before)
    ]
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.exp(np.percentile(medians[0] - medians[1], (tail, 100.0 - tail)))
    ratio = math.exp(float(np.median(after) - np.median(before)))
    return Step(edges[i + 1], Estimate(ratio, float(low), float(high)), p_value)
