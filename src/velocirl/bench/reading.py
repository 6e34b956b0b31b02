"""Reading of saved reports: validated before use, and nothing in them is ever executed."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from velocirl.bench.results import FORMAT, Report
from velocirl.engine.disk.files import parse_json, read_plain


class DamagedReportError(ValueError):
    """Raised for a file that is not a valid benchmark report; the message names the file and the fault."""


def read_report(path: Path) -> Report:
    """Read a report from a file written with `Report.as_json`."""
    try:
        content = parse_json(read_plain(path))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            found = content.get("format") if isinstance(content, dict) else None
            raise ValueError(f"it is of format {found!r}, not {FORMAT}: measure again")
        report = msgspec.convert(content, Report)
        _check(report)
    except ValueError as error:  # errors of msgspec are ValueErrors too
        raise DamagedReportError(f"{path} is no report of benchmarks: {error}") from error
    return report


def _check(report: Report) -> None:
    """Validate values beyond their types."""
    machine = report.machine
    numbers = [machine.load, float(machine.memory_bytes % 2**64), *(result.seconds for result in report.results)]
    numbers += [result.company for result in report.results]
    if not all(map(math.isfinite, numbers)) or not 0 <= machine.memory_bytes < 2**60 or not 0 < machine.cores < 2**20:
        raise ValueError("a number is larger than any machine")
    for result in report.results:
        if any(not 0 <= one.workers < 2**20 for one in result.contestants):
            raise ValueError(f"{result.name} has more workers than any machine")
        names = [one.name for one in result.contestants]
        if len(set(names)) != len(names):
            raise ValueError(f"{result.name} has a contestant twice")
        rounds = [series for one in result.contestants for series in (one.samples, one.by_processor)]
        times = result.reference, result.reference_by_processor
        lengths = set(map(len, (*rounds, *times, result.company_by_round))) - {0}
        if len(lengths) > 1:
            raise ValueError(f"{result.name} has contestants with different numbers of rounds")
        if not all(math.isfinite(figure) for series in (*rounds, *times) for figure in series):
            raise ValueError(f"{result.name} has a sample that is not finite")
        if not all(math.isfinite(cores) and cores >= 0.0 for cores in (result.company, *result.company_by_round)):
            raise ValueError(f"{result.name} has a number of busy cores that cannot be")
        if result.measurements and (min(result.measurements) < 1 or {sum(result.measurements)} != lengths):
            raise ValueError(f"{result.name} has measurements with another number of rounds")
        if any(time <= 0.0 for series in times for time in series):
            raise ValueError(f"{result.name} has a time that is not positive")
    names = [result.name for result in report.results]
    if len(set(names)) != len(names):
        raise ValueError("a benchmark is there twice")
