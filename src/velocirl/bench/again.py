"""Repeated measurement: a baseline is measured twice, and an apparent change in either direction is measured again.

By then, a disturbance that slowed the machine for half a minute is over. A slowdown in the code persists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from velocirl.bench.quiet import rounds_of, too_busy
from velocirl.bench.registry import Benchmark
from velocirl.bench.regression import Compared, Thresholds, compare
from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.session import Watcher, run_benchmarks

AGAIN = 2  # maximum number of repetitions


def measure_twice(report: Report, benchmarks: Sequence[Benchmark], watcher: Watcher, *, peers: bool) -> Report:
    """Measure everything in a report a second time, some minutes later, to make a baseline.

    A baseline taken in a slow minute would hide later slowdowns. Benchmarks that other programs disturbed both times
    are measured once more. Returns the report with the added samples.
    """
    measured = [one for one in benchmarks if any(one.name == result.name for result in report.results)]
    for _ in range(AGAIN):
        if not measured or not report.complete:
            break
        report = _measure_again(report, measured, watcher, peers=peers)
        disturbed = {result.name for result in report.results if too_busy(result)}
        measured = [one for one in measured if one.name in disturbed]
    return report


def compare_and_confirm(
    baseline: Report,
    report: Report,
    benchmarks: Sequence[Benchmark],
    thresholds: Thresholds,
    watcher: Watcher,
    *,
    peers: bool,
) -> tuple[Report, Compared]:
    """Compare a report with a baseline; measure doubtful changes again.

    Returns the report with its additional samples, and the comparison of every value.
    """
    compared = compare(baseline, report, thresholds)
    hopeless = {result.name for result in baseline.results if too_busy(result)}
    for _ in range(AGAIN):
        doubtful = {change.benchmark for change in compared.changes if change.severity != "none"} - hopeless
        chosen = [one for one in benchmarks if one.name in doubtful]
        if not chosen or not report.complete:
            break
        report = _measure_again(report, chosen, watcher, peers=peers)
        compared = compare(baseline, report, thresholds)
    return report, compared


def _measure_again(report: Report, chosen: Sequence[Benchmark], watcher: Watcher, *, peers: bool) -> Report:
    again = run_benchmarks(chosen, report.settings, report.machine, watcher, report.command, peers=peers)
    further = {result.name: result for result in again.results if not result.error}
    results = [together(one, further[one.name]) if one.name in further else one for one in report.results]
    return replace(report, results=results, complete=again.complete)


def together(first: Result, second: Result) -> Result:
    """Merge the samples of a benchmark that was measured twice, as if it had been measured once.

    If the two measurements cover different implementations, only the first one is returned.
    """
    more = {one.name: one for one in second.contestants}
    measured = [one.name for one in first.contestants if one.samples]
    if not measured or set(measured) != {name for name, one in more.items() if one.samples}:
        return first
    rounds, further = rounds_of(first), rounds_of(second)
    before = first.company_by_round or (first.company,) * rounds
    after = second.company_by_round or (second.company,) * further
    return replace(
        first,
        contestants=tuple(_joined(one, more[one.name]) if one.samples else one for one in first.contestants),
        reference=first.reference + second.reference,
        reference_by_processor=first.reference_by_processor + second.reference_by_processor,
        seconds=first.seconds + second.seconds,
        company=max(first.company, second.company),
        company_by_round=before + after,
        measurements=(first.measurements or (rounds,)) + (second.measurements or (further,)),
        interrupted=first.interrupted or second.interrupted,
    )


def _joined(one: Measured, other: Measured) -> Measured:
    known = one.by_processor + other.by_processor if one.by_processor and other.by_processor else ()
    return replace(one, samples=one.samples + other.samples, by_processor=known)
