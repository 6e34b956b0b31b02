"""Benchmarks in which nothing could be measured here, such as those of a GPU that is not there."""

from __future__ import annotations

from collections.abc import Iterable

from velocirl.bench.results import Result


def is_absent(result: Result) -> bool:
    """Whether nothing was measured although nothing went wrong."""
    return not result.error and not result.interrupted and not any(one.samples for one in result.contestants)


def absences(results: Iterable[Result]) -> dict[str, list[str]]:
    """The names of those benchmarks by the reason that they give."""
    found: dict[str, list[str]] = {}
    for result in filter(is_absent, results):
        reasons = dict.fromkeys(one.unavailable for one in result.contestants if one.unavailable)
        found.setdefault("; ".join(reasons) or "nothing to measure", []).append(result.name)
    return found
