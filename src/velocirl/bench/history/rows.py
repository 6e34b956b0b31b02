"""Records of runs and values in a history, and their table rows."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import msgspec

from velocirl.bench.machine.facts import Machine
from velocirl.bench.measuring import THOROUGH, Settings
from velocirl.bench.results import Report
from velocirl.bench.statistics import Estimate, estimate
from velocirl.bench.units import Unit
from velocirl.engine.disk.files import parse_json

Identity = tuple[str, int, int, str]  # Machine.identity
Setting = bool | int | float | str | None
Row = tuple[str | int | float | None, ...]

# Columns of the two tables and the allowed values: the maximum length of a text, or a type.
RUN_COLUMNS: dict[str, int | type] = {
    "started": 40,
    "command": 4_000,
    "commit": 200,
    "complete": bool,
    "quick": bool,
    "machine": 2_000,
    "system": 200,
    "load": float,
    "versions": 10_000,
    "settings": 2_000,
    "figures": int,
}
FIGURE_COLUMNS: dict[str, int | type] = {
    "benchmark": 200,
    "category": 200,
    "contestant": 200,
    "peer": bool,
    "unit": 40,
    "more_is_better": bool,
    "template": 40,
    "median": float,
    "low": float,
    "high": float,
    "spread": float,
    "samples": 1_000_000,
    "reference": float,  # 0 if there is none
    "seconds": float,
    "interrupted": bool,
}


@dataclass(frozen=True)
class PastRun:
    """Saved benchmark run."""

    started: str  # date and time, ISO 8601
    command: str
    commit: str
    complete: bool  # False: interrupted
    quick: bool  # fewer or shorter samples than in a thorough run
    machine: Identity
    system: str
    load: float
    versions: dict[str, str]
    settings: dict[str, Setting]

    @property
    def when(self) -> datetime:
        """Start time of the run."""
        return datetime.fromisoformat(self.started)


@dataclass(frozen=True)
class Point:
    """One implementation's value in one run: median, interval and samples."""

    run: PastRun
    benchmark: str
    category: str
    contestant: str
    peer: bool
    unit: Unit
    median: float
    low: float
    high: float
    spread: float
    samples: tuple[float, ...]
    reference: float | None  # median seconds of the reference workload: the speed of the machine
    seconds: float  # duration of the whole benchmark
    interrupted: bool

    @property
    def estimate(self) -> Estimate:
        """Median and its interval."""
        return Estimate(self.median, self.low, self.high)


def describe(machine: Identity) -> str:
    """Format a machine for display."""
    processor, cores, memory, gpu = machine
    return f"{processor}, {cores} {'core' if cores == 1 else 'cores'}, {memory} GiB" + (f", {gpu}" if gpu else "")


def points_of(report: Report) -> tuple[PastRun, list[Point]]:
    """Convert a report to its history record: all measurements of benchmarks that raised no error."""
    machine = report.machine
    run = PastRun(
        started=_printable(report.started),
        command=_printable(report.command)[: RUN_COLUMNS["command"]],  # pyright: ignore[reportArgumentType]
        commit=_printable(machine.commit),
        complete=report.complete,
        quick=is_quick(report.settings),
        machine=identity_of(machine),
        system=_printable(machine.system),
        load=machine.load,
        versions={_printable(name): _printable(version) for name, version in machine.versions.items()},
        settings=asdict(report.settings),
    )
    return run, list(_points(run, report))


def is_quick(settings: Settings) -> bool:
    """Return whether the settings measure for less time than a thorough run."""
    return settings.sample_seconds < THOROUGH.sample_seconds or settings.fewest_rounds < THOROUGH.fewest_rounds


def _points(run: PastRun, report: Report) -> Iterator[Point]:
    for result in report.results:
        for one in result.contestants:
            found = one.estimate
            if found is None or result.error:
                continue
            yield Point(
                run=run,
                benchmark=_printable(result.name),
                category=_printable(result.category),
                contestant=_printable(one.name),
                peer=one.peer,
                unit=result.unit,
                median=found.median,
                low=found.low,
                high=found.high,
                spread=one.spread,
                samples=tuple(one.samples),
                reference=estimate(result.reference).median if result.reference else None,
                seconds=result.seconds,
                interrupted=result.interrupted,
            )


def identity_of(machine: Machine) -> Identity:
    """Return the hardware identity that all values of one trend share."""
    processor, cores, memory, gpu = machine.identity
    return _printable(processor), cores, memory, _printable(gpu)


def _printable(text: str) -> str:
    """Replace unprintable characters: the text must not control a terminal and must be valid UTF-8."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def run_row(run: PastRun, figures: int) -> Row:
    """Return the values of a run's row, in column order."""
    texts = (json.dumps(part) for part in (run.machine, run.versions, run.settings))
    machine, versions, settings = texts
    row = (run.started, run.command, run.commit, run.complete, run.quick, machine, run.system, run.load + 0.0)
    return _checked(RUN_COLUMNS, (*row, versions, settings, figures))


def figure_row(point: Point) -> Row:
    """Return the values of a measured value's row, in column order."""
    unit = point.unit
    figures = (figure + 0.0 for figure in (point.median, point.low, point.high, point.spread))  # SQLite has no -0.0
    return _checked(
        FIGURE_COLUMNS,
        (
            *(point.benchmark, point.category, point.contestant, point.peer),
            *(unit.name, unit.more_is_better, unit.template, *figures, json.dumps(point.samples)),
            *(point.reference or 0.0, point.seconds + 0.0, point.interrupted),
        ),
    )


def read_run(row: Row) -> tuple[PastRun, int]:
    """Convert a row to a run and its number of values; a ValueError names the fault."""
    *values, figures = _checked(RUN_COLUMNS, row)
    given: dict[str, Any] = dict(zip(RUN_COLUMNS, values, strict=False))
    for name, kind in (("machine", Identity), ("versions", dict[str, str]), ("settings", dict[str, Setting])):
        given[name] = msgspec.convert(parse_json(given[name]), kind)
    run = PastRun(**{**given, "complete": bool(given["complete"]), "quick": bool(given["quick"])})
    if run.when.tzinfo is None:
        raise ValueError("a start without a time zone")
    texts = (run.machine[0], run.machine[3], *run.versions, *run.versions.values(), *run.settings)
    if not all(text.isprintable() for text in texts):
        raise ValueError("a text that cannot be printed")
    if run.machine[1] < 1 or run.machine[2] < 0:
        raise ValueError("a number out of its range")
    assert isinstance(figures, int)  # noqa: S101 - for the type checker: _checked saw to it
    return run, figures


def read_point(run: PastRun, row: Row) -> Point:
    """Convert a row to a point of a run; a ValueError names the fault."""
    given: dict[str, Any] = dict(zip(FIGURE_COLUMNS, _checked(FIGURE_COLUMNS, row), strict=True))
    for name in ("peer", "more_is_better", "interrupted"):
        given[name] = bool(given[name])
    unit = Unit(given.pop("unit"), given.pop("more_is_better"), given.pop("template"))
    samples = msgspec.convert(parse_json(given.pop("samples")), tuple[float, ...])
    if not samples or not all(map(math.isfinite, samples)):
        raise ValueError("samples that are not finite numbers")
    point = Point(run=run, unit=unit, samples=samples, **{**given, "reference": given["reference"] or None})
    if not point.low <= point.median <= point.high or min(point.spread, point.seconds, given["reference"]) < 0.0:
        raise ValueError("a number out of its range")
    return point


def digest(*parts: object) -> str:
    """Compute the digest stored with a row, which reveals changed bits."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _checked(columns: dict[str, int | type], row: Sequence[Any]) -> Row:
    """Return the row if every value is valid for its column."""
    for (name, kind), value in zip(columns.items(), row, strict=True):
        if isinstance(kind, int):
            right = isinstance(value, str) and len(value) <= kind and value.isprintable()
        elif kind is bool:
            right = value in (0, 1) and isinstance(value, int)
        elif kind is int:
            right = isinstance(value, int) and 0 <= value < 2**31
        else:
            right = isinstance(value, float) and math.isfinite(value)
        if not right:
            shown = repr(value)
            raise ValueError(f"{name} cannot be {shown if len(shown) < 60 else shown[:60] + '...'}")
    return tuple(int(value) if isinstance(value, bool) else value for value in row)
