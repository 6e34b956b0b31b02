"""History of benchmarks: all runs measured by this user, for trends.

The history is one SQLite file. It is read and validated as a whole when opened; no connection stays open. A run is
added in one transaction: a kill leaves it whole or absent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from velocirl.bench.history.reading import read
from velocirl.bench.history.rows import (
    Identity,
    PastRun,
    Point,
    figure_row,
    identity_of,
    points_of,
    read_point,
    read_run,
    run_row,
)
from velocirl.bench.history.schema import DamagedHistoryError, turn
from velocirl.bench.history.writing import append, create_file
from velocirl.bench.machine.facts import this_machine
from velocirl.bench.results import Report
from velocirl.engine.disk.directories import data_directory
from velocirl.engine.naming import nearest

__all__ = ["DamagedHistoryError", "History", "default_path"]

PLACE = ("bench", "history.sqlite")


def default_path() -> Path:
    """Return the default path of the history."""
    return data_directory().joinpath(*PLACE)


class History:
    """Runs of a history file. `History.open` reads one; `add` adds a run to the file and to this object."""

    def __init__(self, path: Path, runs: Iterable[tuple[PastRun, list[Point]]]) -> None:
        self.path = path
        self._runs = sorted(runs, key=lambda one: one[0].when)
        self._here: Identity | None = None

    @classmethod
    def open(cls, path: str | Path | None = None, *, create: bool = True) -> Self:
        """Open a history file, by default this user's; create it if missing, unless `create` is False.

        A file that is not a valid history raises a `DamagedHistoryError` and is left unchanged.
        """
        path = default_path() if path is None else Path(path).expanduser()
        if not os.path.lexists(path):
            if not create:
                raise FileNotFoundError(f"there is no history {path} yet: velocirl bench measures and begins one")
            create_file(path)
        with turn(path.parent):
            return cls(path, read(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: no resource stays open."""

    @property
    def runs(self) -> list[PastRun]:
        """All runs of all machines, oldest first."""
        return [run for run, _ in self._runs]

    def add(self, report: Report) -> bool:
        """Save the measurements of a run; returns False if there are none."""
        try:
            run, points = points_of(report)
            row, rows = run_row(run, len(points)), [figure_row(point) for point in points]
            kept = read_run(row)[0]  # a row that could not be read back is not written
            figures = [read_point(kept, one) for one in rows]
        except ValueError as error:
            raise ValueError(f"this run cannot be kept in the history: {error}") from error
        if not rows:
            return False
        with turn(self.path.parent):
            before = read(self.path)  # other processes may have written since, and not only runs
            append(self.path, len(before) + 1, row, rows)
        self._runs = sorted([*before, (kept, figures)], key=lambda one: one[0].when)
        return True

    def machines(self) -> list[Identity]:
        """List the machines of all runs, the latest run's first."""
        return list(dict.fromkeys(run.machine for run, _ in reversed(self._runs)))

    def here(self) -> Identity:
        """Return the identity of the machine this process runs on."""
        if self._here is None:
            self._here = identity_of(this_machine())
        return self._here

    def benchmarks(self, machine: Identity | None = None, *, quick: bool = False) -> dict[str, str]:
        """Map benchmarks measured on a machine (default: this one) to their categories, in the order of runs."""
        return {point.benchmark: point.category for point in self._points(machine, quick)}

    def contestants(
        self, benchmark: str, machine: Identity | None = None, *, quick: bool = False, peers: bool = True
    ) -> list[str]:
        """List the implementations measured in a benchmark: first those of the latest run, in its order."""
        measured = [point for point in self._points(machine, quick) if point.benchmark == benchmark]
        latest = measured[-1].run if measured else None
        measured.sort(key=lambda point: point.run is not latest)  # stable sort: preserves the order within a run
        return list(dict.fromkeys(point.contestant for point in measured if peers or not point.peer))

    def series(
        self, benchmark: str, contestant: str | None = None, machine: Identity | None = None, *, quick: bool = False
    ) -> list[Point]:
        """Return an implementation's values (default: the first) on one machine (default: this one), oldest first.

        Runs with --quick are omitted unless requested; values in another unit than the latest one's are omitted too.
        """
        known = self.benchmarks(machine, quick=quick)
        if benchmark not in known:
            raise ValueError(f"the history has no benchmark {benchmark!r} of this machine{nearest(benchmark, known)}")
        names = self.contestants(benchmark, machine, quick=quick)
        if contestant is None:
            contestant = names[0]
        elif contestant not in names:
            raise ValueError(f"{benchmark} has no contestant {contestant!r}{nearest(contestant, names)}")
        found = [
            point
            for point in self._points(machine, quick)
            if (point.benchmark, point.contestant) == (benchmark, contestant)
        ]
        return [point for point in found if point.unit == found[-1].unit]

    def _points(self, machine: Identity | None, quick: bool) -> list[Point]:
        machine = self.here() if machine is None else machine
        return [
            point
            for run, points in self._runs
            if run.machine == machine and (quick or not run.quick)
            for point in points
        ]
