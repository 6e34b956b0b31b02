"""Runs side by side: the curve of each, and of several seeds their interquartile mean with its interval.

The interquartile mean leaves the best and the worst quarter of the seeds out: a single lucky or broken seed does not
move it much, and it needs fewer seeds than a median. Its interval is that of seeds drawn anew, many times, from those
that there are (Agarwal et al., 2021: Deep Reinforcement Learning at the Edge of the Statistical Precipice).
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
MOST_POINTS = 250  # of a curve over seeds: as many as a picture shows
AT_A_TIME = 2**22  # numbers that are drawn anew in one go


@dataclass(frozen=True)
class Curve:
    """A figure against steps or time: that of one seed, or the interquartile mean of several within its interval."""

    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    seeds: int = 1


class Subject(NamedTuple):
    """What one line of a plot is of: a run, a group of runs, or runs that were put together."""

    name: str
    algorithm: str
    environment: str
    place: str  # its directory, or how many there are
    results: Sequence[SeedResult]

    @property
    def rows(self) -> list[Row]:
        """Those of all its seeds."""
        return [row for one in self.results for row in one.rows]


class PlotLine(NamedTuple):
    """A line of a plot, and the evaluations of the same runs where they are shown too."""

    subject: Subject
    curve: Curve
    evaluation: Curve | None = None


@dataclass(frozen=True)
class Plot:
    """All that a plot shows, whatever it is drawn with."""

    lines: Sequence[PlotLine]
    metric: str
    by: By

    def _repr_png_(self) -> bytes | None:
        from velocirl.runs.curves.curve import plot_png  # which knows this module

        return plot_png(self)

    @property
    def title(self) -> str:
        """What all lines have in common."""
        subjects = [one.subject for one in self.lines]
        shared = {one.environment for one in subjects}, {one.algorithm for one in subjects}
        return "  ".join(next(iter(some)) for some in shared if len(some) == 1) or "learning curves"

    @property
    def x_label(self) -> str:
        """What the plot goes along."""
        return "environment steps" if self.by == "steps" else "seconds of training"

    @property
    def y_label(self) -> str:
        """What is plotted."""
        return "mean episode return" if self.metric == RETURN else self.metric


def find_subjects(names: Sequence[str | None], *, together: bool = False) -> list[Subject]:
    """The runs and groups of some names, each once; `together`, those of an algorithm and environment are one.

    Names that repeat are told apart by algorithm and environment, or by where they lie.
    """
    found = list({one.place: one for one in map(_subject, names)}.values())
    if together:
        return _put_together(found)
    for words in (lambda one: f"{one.algorithm} {one.environment}", lambda one: one.place):
        twice = [one.name for one in found]
        found = [one if twice.count(one.name) == 1 else one._replace(name=words(one)) for one in found]
    return found


def known_metrics(subjects: Sequence[Subject]) -> list[str]:
    """The names of all figures that any of them has."""
    return list(dict.fromkeys(name for one in subjects for result in one.results for name in names_of(result.rows)))


def plot_of(subjects: Sequence[Subject], metric: str, by: By = "steps", smooth: int = 1) -> Plot:
    """The plot of a figure; beside the return stand evaluations. Those that have no such figure are left out."""
    lines = []
    for one in subjects:
        curve = curve_of(one, metric, by, smooth)
        evaluation = curve_of(one, EVALUATION, by) if metric == RETURN else None
        if curve is not None:
            lines.append(PlotLine(one, curve, evaluation))
    return Plot(lines, metric, by)


def curve_of(subject: Subject, metric: str, by: By = "steps", smooth: int = 1) -> Curve | None:
    """The curve of a subject, each seed smoothed by a mean over the last so many points; None where it has no figure.

    Seeds that failed are left out where there are others. The curve goes over what all of its seeds have passed.
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
    """The mean along an axis without the lowest and the highest quarter of it, rounded down."""
    count = values.shape[axis]
    cut = count // 4
    return np.sort(values, axis).take(range(cut, count - cut), axis).mean(axis)


def bootstrap(values: Array) -> tuple[Array, Array]:
    """The ends of the interval of the interquartile mean over the first axis: seeds are drawn with replacement."""
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
    """The points of a seed that have the figure, smoothed."""
    x, y = clock(rows) if by == "time" else column(rows, STEP), column(rows, metric)
    having = np.isfinite(y)
    x, y = x[having], y[having]
    if smooth > 1 and len(y):
        sums = np.cumsum(np.insert(y, 0, 0.0))
        last = np.arange(1, len(y) + 1)
        first = np.maximum(last - smooth, 0)
        y = (sums[last] - sums[first]) / (last - first)
    return x, y
