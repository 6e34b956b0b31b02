"""Trend of a benchmark in a history: its values run by run, and the commits where their level changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from velocirl.bench.history.change_points import FEWEST_RUNS, find_steps, noise
from velocirl.bench.history.rows import Identity, Point
from velocirl.bench.history.runs import History
from velocirl.bench.statistics import Estimate
from velocirl.bench.units import Unit

# Relative to the reference workload, values are comparable across machine speeds; not used if that is far noisier.
MUCH_NOISIER = 1.5


@dataclass(frozen=True)
class ChangePoint:
    """Start of a new level, and the other changes in its first run."""

    place: int  # index of the new level's first run among the points
    ratio: Estimate  # goodness of the new level relative to the old one: below 1 is worse, whatever the unit
    p_value: float
    began: str  # commit of the first run of the new level
    before: str  # commit of the last run of the old level
    started: str  # start time of the new level's first run
    versions: tuple[str, ...]  # packages that changed between these two runs: numba 0.61.0 to 0.62.1

    @property
    def worse(self) -> bool:
        """True for a regression."""
        return self.ratio.median < 1.0


@dataclass(frozen=True)
class Trend:
    """Values of an implementation on one machine, oldest first, and the changes of their level."""

    benchmark: str
    category: str
    contestant: str
    peer: bool
    machine: Identity
    unit: Unit
    points: tuple[Point, ...]
    changes: tuple[ChangePoint, ...]
    relative: bool  # True: changes were searched in values relative to the reference workload
    note: str  # reason why no changes were searched; empty if they were


def trend(
    history: History,
    benchmark: str,
    contestant: str | None = None,
    *,
    machine: Identity | None = None,
    quick: bool = False,
    last: int | None = None,
) -> Trend:
    """Compute the trend of an implementation (default: the first) on one machine (default: this one).

    With `last`, only the last N points and their changes are returned; changes are still searched in all points.
    """
    points = history.series(benchmark, contestant, machine, quick=quick)
    figures, relative = comparable(points)
    if len(points) < FEWEST_RUNS:
        note = f"too few runs to find changes: {len(points)}, and {FEWEST_RUNS} are needed"
    elif not (figures > 0.0).all():
        note = "changes are ratios, and not all figures are above 0"
    else:
        note = ""
    newest, skipped = points[-1], 0 if last is None else max(len(points) - last, 0)
    changes = [] if note else _changes(points, figures)
    return Trend(
        benchmark=benchmark,
        category=newest.category,
        contestant=newest.contestant,
        peer=newest.peer,
        machine=newest.run.machine,
        unit=newest.unit,
        points=tuple(points[skipped:]),
        changes=tuple(replace(one, place=one.place - skipped) for one in changes if one.place >= skipped),
        relative=relative and not note,
        note=note,
    )


def comparable(points: Sequence[Point]) -> tuple[np.ndarray, bool]:
    """Return the values such that more is better, and whether they are corrected for the machine's speed.

    The correction is left out where it is impossible or makes the values far noisier.
    """
    medians = np.array([point.median for point in points], np.float64)
    unit = points[-1].unit
    if not (medians > 0.0).all():
        return medians, False
    goodness = medians if unit.more_is_better else 1.0 / medians
    references = np.array([point.reference or 0.0 for point in points], np.float64)
    if not (unit.name == "s" or unit.name.endswith("/s")) or not (references > 0.0).all():
        return goodness, False
    relative = goodness * references  # a slow machine has low speeds and long reference times: they cancel
    noisier = len(points) > 1 and noise(np.log(relative)) > MUCH_NOISIER * noise(np.log(goodness))
    return (goodness, False) if noisier else (relative, True)


def _changes(points: Sequence[Point], figures: np.ndarray) -> list[ChangePoint]:
    found = []
    for step in find_steps(figures.tolist()):
        before, after = points[step.place - 1].run, points[step.place].run
        versions = tuple(
            f"{name} {before.versions.get(name, 'not there')} to {version}"
            for name, version in after.versions.items()
            if before.versions.get(name) != version
        )
        began = ChangePoint(step.place, step.ratio, step.p_value, after.commit, before.commit, after.started, versions)
        found.append(began)
    return found
