"""Recommendations derived from a report, each with the measurement it is based on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from velocirl.bench.profiling.advice import Facts, advise
from velocirl.bench.regression import Change
from velocirl.bench.reports.kpis import readings
from velocirl.bench.reports.phase_shares import PREFIX, phases_of, segments
from velocirl.bench.reports.rivals import rivalries, times_as_good
from velocirl.bench.reports.roofline import share_in
from velocirl.bench.results import MISSED, Measured, Report, Result
from velocirl.bench.statistics import NOISY_FROM, Estimate

Weight = Literal["act", "try", "know"]
WEIGHTS: tuple[Weight, ...] = ("act", "try", "know")  # most urgent first
THREADS = re.compile(r"(?P<who>.*?)(?P<count>\d{1,4}) threads?")
SLOWER, FASTER = 0.97, 1.03  # ratios between these are too close to 1 to mention
COLD, WARM = "cold", "warm"
FAR = 0.25  # fraction of the machine's limit below which a recommendation is made
POOR = 0.6  # fraction of the ideal speedup of N threads
MOST_NAMES = 6
KEEP_CACHE = 1.5  # ratio of start-up times without and with functions compiled by an earlier process

REMEDIES = {
    "arithmetic": "Give {name} more rows at a time (num_envs, minibatch_size): it is far from the limit of arithmetic",
    "memory": "Look into {name}: it moves far less memory than the machine could, so something else holds it up",
}


@dataclass(frozen=True)
class Recommendation:
    """Recommended action, its evidence, and its urgency."""

    text: str
    measurement: str
    weight: Weight = "try"


def recommend(report: Report, changes: Sequence[Change] = ()) -> list[Recommendation]:
    """Derive all recommendations from a report and its changes since a baseline, most urgent first."""
    found = [*_regressions(changes), *_key_figures(report), *_noise(report)]
    for result in report.results:
        for rule in (_threads, _peers, _cache):
            found += rule(result)
        found += _phases(report, result)
    found += [*_missed(report), *_limits(report)]
    return sorted(_merged(found), key=lambda one: WEIGHTS.index(one.weight))


def _merged(found: list[Recommendation]) -> list[Recommendation]:
    """Merge equal recommendations and join their evidence."""
    same: dict[tuple[str, Weight], list[str]] = {}
    for one in found:
        same.setdefault((one.text, one.weight), []).append(one.measurement)
    return [Recommendation(text, "; ".join(dict.fromkeys(told)), weight) for (text, weight), told in same.items()]


def _regressions(changes: Sequence[Change]) -> Iterator[Recommendation]:
    for change in changes:
        if change.worse:
            ratio = change.ratio
            text = f"Find what made {change.benchmark} worse since the baseline"
            interval = f"{ratio.low - 1.0:+.1%} to {ratio.high - 1.0:+.1%}"
            measurement = f"{change.contestant}: {ratio.median - 1.0:+.1%} ({interval}), {change.reason}"
            yield Recommendation(text, measurement, "act" if change.severity == "failure" else "try")


def _key_figures(report: Report) -> Iterator[Recommendation]:
    for reading in readings(report):
        if reading.status in ("alert", "short"):
            measurement = f"{reading.says_measured} in {reading.benchmark} ({reading.contestant})"
            goal = f"target {reading.says_target}, alarming {reading.says_alert}"
            text = f"Bring {reading.indicator.name.lower()} to its target: begin with the benchmark {reading.benchmark}"
            yield Recommendation(text, f"{measurement}; {goal}", "act" if reading.status == "alert" else "try")


def _noise(report: Report) -> Iterator[Recommendation]:
    machine = report.machine
    if machine.busy:
        load = f"load average {machine.load:.2f} on {machine.cores} cores before the run"
        yield Recommendation("Measure again while nothing else runs on the machine", load, "act")
    noisy = {result.name: max(one.spread for one in result.contestants if one.noisy) for result in _noisy(report)}
    if noisy:
        names, worst = list(noisy), max(noisy, key=noisy.__getitem__)
        others = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        text = f"Repeat what was too noisy to conclude from: velocirl bench {' '.join(names[:MOST_NAMES])}{others}"
        which = "benchmark has" if len(noisy) == 1 else "benchmarks have"
        most = f"{worst} by {noisy[worst]:.0%}"
        measurement = f"{len(noisy)} {which} figures that spread by more than {NOISY_FROM:.0%}: {most}"
        yield Recommendation(text, measurement, "try")


def _noisy(report: Report) -> list[Result]:
    return [result for result in report.results if any(one.noisy for one in result.contestants)]


def _missed(report: Report) -> Iterator[Recommendation]:
    """Recommend on missed targets that key figures and peer ratios do not cover already."""
    told = {reading.benchmark for reading in readings(report) if reading.status in ("alert", "short")}
    for result in report.results:
        behind = {f"{rivalry.ours} / {rivalry.theirs}" for rivalry in rivalries(result) if rivalry.ratio.high < SLOWER}
        for finding in result.findings:
            if (
                finding.verdict != MISSED
                or finding.estimate is None
                or result.name in told
                or finding.statement in behind
            ):
                continue
            measured = f"{finding.unit.say(finding.estimate.median)} ({finding.unit.say_interval(finding.estimate)})"
            text = f"Look into {result.name}, where {finding.statement} misses its target"
            yield Recommendation(text, f"{measured}; {finding.says_target}", "try")


def _threads(result: Result) -> Iterator[Recommendation]:
    """Compare several threads with one thread of the same implementation."""
    found = [(THREADS.fullmatch(one.name), one) for one in _ours(result)]
    counted = [(match["who"].rstrip(" ,"), int(match["count"]), one) for match, one in found if match]
    for who, count, one in counted:
        single = next((other for name, number, other in counted if name == who and number == 1), None)
        times = times_as_good(result, one, single) if count > 1 and single is not None else None
        if times is None or single is None:
            continue
        measurement = f"{result.name}: {_times(times)} as fast, {_say(result, one)} against {_say(result, single)}"
        if times.high < SLOWER:
            yield Recommendation(f"Use threads=1 for work of this size: {count} threads are slower", measurement, "act")
        elif times.low > FASTER and times.median < POOR * count:
            text = f"Do not expect {count} times the speed of {count} threads everywhere"
            yield Recommendation(text, measurement, "know")


def _peers(result: Result) -> Iterator[Recommendation]:
    for rivalry in rivalries(result):
        if rivalry.ratio.high < SLOWER:
            text = f"Look at what {rivalry.theirs} does better in {result.name}"
            yield Recommendation(text, f"{rivalry.ours} is {_times(rivalry.ratio)} as good as {rivalry.theirs}", "try")


def _cache(result: Result) -> Iterator[Recommendation]:
    """Compare cold with warm starts."""
    cold = next((one for one in _ours(result) if COLD in one.name), None)
    warm = next((one for one in _ours(result) if WARM in one.name), None)
    times = times_as_good(result, warm, cold) if cold is not None and warm is not None else None
    if times is not None and cold is not None and warm is not None and times.low > KEEP_CACHE:
        text = "Keep VELOCIRL_HOME between runs, in containers and in CI too: compiled functions are cached there"
        yield Recommendation(text, f"{result.name}: {_say(result, cold)} cold, {_say(result, warm)} warm", "know")


def _phases(report: Report, result: Result) -> Iterator[Recommendation]:
    phases = phases_of(result)
    if not phases:
        return
    largest = max(segments(phases), key=lambda segment: segment.share)
    gain = f"{1.0 / (1.0 - largest.share):.2f} times the speed" if largest.share < 0.99 else "all of the time"
    yield Recommendation(
        f"To make {result.name} faster, begin with {largest.path}, the largest part of its time",
        f"{largest.path} takes {largest.share:.0%} of the time: at most {gain} can be won there",
        "know",
    )
    settings = {key: value for key, value in result.metadata.items() if not key.startswith(PREFIX)}
    environment = settings.get("environment")
    facts = Facts(
        environment=environment if isinstance(environment, str) else "ENV",
        settings=settings,
        cores=report.machine.cores,
        gpu=bool(report.machine.gpu),
    )
    for advice in advise(phases, facts):
        yield Recommendation(f"{result.name}: {advice.text}", advice.measurement, "try")


def _limits(report: Report) -> Iterator[Recommendation]:
    """Find the implementation furthest below each kind of limit."""
    farthest: dict[str, tuple[float, Result, Measured]] = {}
    for result in report.results:
        for one in _ours(result):
            share = None if one.noisy else share_in(result, one, report.peaks)
            if share is not None and share.of_peak < (farthest[share.bound][0] if share.bound in farthest else FAR):
                farthest[share.bound] = share.of_peak, result, one
    for bound, (share, result, one) in sorted(farthest.items()):
        measurement = f"{one.name} reaches {share:.1%} of what {bound} allows: {_say(result, one)}"
        yield Recommendation(REMEDIES[bound].format(name=result.name), measurement, "know")


def _ours(result: Result) -> list[Measured]:
    return [one for one in result.contestants if not one.peer and one.samples]


def _say(result: Result, one: Measured) -> str:
    return result.unit.say(median(one.samples))


def _times(times: Estimate) -> str:
    return f"{times.median:.2f} times ({times.low:.2f} to {times.high:.2f})"
