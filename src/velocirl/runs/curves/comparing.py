"""Comparison of runs: one curve per run, or the interquartile mean of several seeds with its confidence interval.

The interquartile mean drops the best and the worst quarter of the seeds. A single lucky or broken seed hardly moves it,
and it needs fewer seeds than a median. Its interval is a bootstrap: seeds are resampled with replacement (Agarwal et
al., 2021: Deep Reinforcement Learning at the Edge of the Statistical Precipice).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.runs.curves.columns import clock, column, names_of
from velocirl.runs.directory import Run, RunSummary
from velocirl.runs.finding import find
from velocirl.runs.metrics import EVALUATION, RETURN, STEP, Row
from velocirl.runs.seeds import CONFIDENCE, SeedResult, aligned

Array = NDArray[np.float64]
By = Literal["steps", "time"]
RESAMPLES = 2000
MOST_POINTS = 250  # of a curve over seeds: as many as an image can show
AT_A_TIME = 2**22  # numbers resampled at once


@dataclass(frozen=True)
class Curve:
    """A metric over steps or time: of one seed, or the interquartile mean of several with its interval."""

    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    seeds: int = 1


class Subject(NamedTuple):
    """Data of one line of a plot: a run, a group of runs, or several runs merged."""

    name: str
    algorithm: str
    environment: str
    place: str  # its directory, or the number of its runs
    results: Sequence[SeedResult]

    @property
    def rows(self) -> list[Row]:
        """The rows of all seeds."""
        return [row for one in self.results for row in one.rows]


class PlotLine(NamedTuple):
    """A line of a plot, with the evaluations of the same runs if these are shown too."""

    subject: Subject
    curve: Curve
    evaluation: Curve | None = None


@dataclass(frozen=True)
class Plot:
    """Contents of a plot, independent of the renderer."""

    lines: Sequence[PlotLine]
    metric: str
    by: By

    def _repr_png_(self) -> bytes | None:
        from velocirl.runs.curves.curve import plot_png  # imported here: that module imports this one

        return plot_png(self)

    @property
    def title(self) -> str:
        """The environment and the algorithm, as far as all lines share them."""
        subjects = [one.subject for one in self.lines]
        shared = {one.environment for one in subjects}, {one.algorithm for one in subjects}
        return "  ".join(next(iter(some)) for some in shared if len(some) == 1) or "learning curves"

    @property
    def x_label(self) -> str:
        """The label of the x-axis."""
        return "environment steps" if self.by == "steps" else "seconds of training"

    @property
    def y_label(self) -> str:
        """The label of the y-axis."""
        return "mean episode return" if self.metric == RETURN else self.metric


def find_subjects(names: Sequence[str | None], *, together: bool = False) -> list[Subject]:
    """Find runs and groups by name, each once; with `together`, merge those of one algorithm and environment.

    Duplicate names are replaced by algorithm and environment or, if these repeat too, by the directory.
    """
    found = list({one.place: one for one in map(_subject, names)}.values())
    if together:
        return _put_together(found)
    for words in (lambda one: f"{one.algorithm} {one.environment}", lambda one: one.place):
        twice = [one.name for one in found]
        found = [one if twice.count(one.name) == 1 else one._replace(name=words(one)) for one in found]
    return found


def known_metrics(subjects: Sequence[Subject]) -> list[str]:
    """Return the names of all metrics that any subject has."""
    return list(dict.fromkeys(name for one in subjects for result in one.results for name in names_of(result.rows)))


def plot_of(subjects: Sequence[Subject], metric: str, by: By = "steps", smooth: int = 1) -> Plot:
    """Build the plot of a metric; returns are shown with evaluations. Subjects without this metric are omitted."""
    lines = []
    for one in subjects:
        curve = curve_of(one, metric, by, smooth)
        evaluation = curve_of(one, EVALUATION, by) if metric == RETURN else None
        if curve is not None:
            lines.append(PlotLine(one, curve, evaluation))
    return Plot(lines, metric, by)


def curve_of(subject: Subject, metric: str, by: By = "steps", smooth: int = 1) -> Curve | None:
    """Compute the curve of a subject, each seed smoothed by a mean over its last `smooth` points; None without data.

    Failed seeds are omitted unless all failed. The curve covers the range that all remaining seeds have reached.
    """
    sound = [one for one in subject.results if one.status != "failed"] or subject.results
    lines = [line for one in sound if len((line := _line(one.rows, metric, by, smooth))[0])]
    if len(lines) == 1:
        return Curve(*lines[0])
    common = aligned(lines, MOST_POINTS)
    if common is None:
        return None
    x, values = common
    low, high = bootstrap(values)
    return Curve(x, interquartile_mean(values), low, high, len(lines))


def interquartile_mean(values: Array, axis: int = 0) -> Array:
    """Compute the mean along an axis without its lowest and highest quarter (of a size rounded down)."""
    count = values.shape[axis]
    cut = count // 4
    return np.sort(values, axis).take(range(cut, count - cut), axis).mean(axis)


def bootstrap(values: Array) -> tuple[Array, Array]:
    """Bootstrap the interval of the interquartile mean over the first axis: seeds are drawn with replacement.

    Returns its low and high ends, each of shape (points,).
    """
    seeds, points = values.shape
    chosen = np.random.default_rng(0).integers(0, seeds, (RESAMPLES, seeds))
    tail = 50.0 * (1.0 - CONFIDENCE)
    width = max(AT_A_TIME // (RESAMPLES * seeds), 1)
    parts = [
        np.percentile(interquartile_mean(values[:, first : first + width][chosen], 1), (tail, 100.0 - tail), axis=0)
        for first in range(0, points, width)
    ]
    low, high = np.concatenate(parts, axis=1)
    return low, high


def _subject(name: str | None) -> Subject:
    found = find(name)
    described = found.description
    if isinstance(found, Run):
        status = RunSummary(found.name, found.path, found.description).status
        results = [SeedResult(found.description.seed, status, found.rows())]
    else:
        results = found.results()
    return Subject(found.name, described.algorithm, described.environment, str(found.path), results)


def _put_together(subjects: Sequence[Subject]) -> list[Subject]:
    groups: dict[tuple[str, str], list[Subject]] = {}
    for one in subjects:
        groups.setdefault((one.algorithm, one.environment), []).append(one)
    return [
        Subject(" ".join(key), *key, f"{len(some)} runs", [result for one in some for result in one.results])
        for key, some in groups.items()
    ]


def _line(rows: Sequence[Row], metric: str, by: By, smooth: int) -> tuple[Array, Array]:
    """Return x and y of the rows of a seed that have the metric, smoothed."""
    x, y = clock(rows) if by == "time" else column(rows, STEP), column(rows, metric)
    having = np.isfinite(y)
    x, y = x[having], y[having]
    if smooth > 1 and len(y):
        sums = np.cumsum(np.insert(y, 0, 0.0))
        last = np.arange(1, len(y) + 1)
        first = np.maximum(last - smooth, 0)
        y = (sums[last] - sums[first]) / (last - first)
    return x, y
