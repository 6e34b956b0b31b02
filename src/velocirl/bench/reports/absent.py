"""Benchmarks that could not be measured, such as without a GPU, or that did not fit into the time limit."""

from __future__ import annotations

from collections.abc import Iterable

from velocirl.bench.results import Report, Result

NO_TIME = "no time at a glance"


def is_absent(result: Result) -> bool:
    """Return whether nothing was measured although nothing failed."""
    return not result.error and not result.interrupted and not any(one.samples for one in result.contestants)


def absences(results: Iterable[Result]) -> dict[str, list[str]]:
    """Map the reasons of unmeasured benchmarks to the benchmarks' names."""
    found: dict[str, list[str]] = {}
    for result in filter(is_absent, results):
        reasons = dict.fromkeys(one.unavailable for one in result.contestants if one.unavailable)
        found.setdefault("; ".join(reasons) or "nothing to measure", []).append(result.name)
    return found


def missing(report: Report) -> dict[str, list[str]]:
    """Map reasons to everything not measured: benchmarks, implementations of other benchmarks, and those left out."""
    found = absences(report.results)
    for result in report.results:
        for one in () if is_absent(result) else result.contestants:
            if not one.samples:
                found.setdefault(one.unavailable or "not measured", []).append(f"{one.name} of {result.name}")
    if report.left_out:
        found.setdefault(NO_TIME, []).extend(report.left_out)
    return found
