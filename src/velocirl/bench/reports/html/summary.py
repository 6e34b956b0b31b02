"""Page header: machine, warnings and overall results."""

from __future__ import annotations

from collections.abc import Sequence

from velocirl.bench.regression import Change
from velocirl.bench.reports.kpis import readings
from velocirl.bench.results import MET, MISSED, UNDECIDED, Report
from velocirl.monitor.markup import Markup, joined, tag


def summary_head(report: Report, changes: Sequence[Change], *, compared: bool) -> Markup:
    """Build the title, warnings, counts, and the circumstances of the run."""
    machine = report.machine
    gpu = f", {machine.gpu}" if machine.gpu else ""
    where = f"{machine.processor}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB{gpu}"
    title = tag(
        "div", tag("h1", "velocirl bench"), tag("p", f"{where} · {report.started.replace('T', ' ')}", class_="where")
    )
    return tag("header", title, *_warnings(report), _tiles(report, changes, compared), _facts(report), class_="top")


def _warnings(report: Report) -> list[Markup]:
    parts = []
    if not report.complete:
        count = len(report.results)
        text = f"Only a part of the run: it was interrupted after {count} benchmark{'s' if count != 1 else ''}."
        parts.append(tag("p", tag("b", text), class_="note fair"))
    if report.failures:
        names = ", ".join(result.name for result in report.failures)
        parts.append(tag("p", tag("b", f"Ended by an error: {len(report.failures)}. "), names, class_="note bad"))
    return [*parts, *(tag("p", warning, class_="note fair") for warning in report.machine.warnings)]


def _tiles(report: Report, changes: Sequence[Change], compared: bool) -> Markup:
    measured = sum(any(one.samples for one in result.contestants) for result in report.results)
    failed, worse = len(report.failures), sum(change.worse for change in changes)
    improved = sum(change.severity == "improved" for change in changes)
    tiles = [
        _tile(f"{measured}", "benchmarks measured", f"{failed} failed" if failed else "", "bad" if failed else "good"),
        _targets([finding.verdict for result in report.results for finding in result.findings]),
        _key_figures([reading.status for reading in readings(report)]),
    ]
    if compared:
        kind = "bad" if worse else "good"
        tiles.append(_tile(f"{worse}", "regressions", f"{improved} improved" if improved else "", kind))
    else:
        tiles.append(_tile("-", "regressions", "no baseline to compare with", ""))
    return tag("div", *tiles, class_="tiles")


def _targets(verdicts: list[str]) -> Markup:
    met, missed, undecided = (verdicts.count(verdict) for verdict in (MET, MISSED, UNDECIDED))
    more = _and(f"{missed} missed" if missed else "", f"{undecided} undecided" if undecided else "")
    kind = "bad" if missed else "fair" if undecided else "good"
    return _tile(f"{met}/{met + missed + undecided}", "targets met", more, kind)


def _key_figures(states: list[str]) -> Markup:
    found = [state for state in states if state != "not measured"]  # unmeasured key figures are not counted
    kind = "bad" if "alert" in found else "fair" if "short" in found else "good"
    return _tile(f"{found.count('met')}/{len(found)}", "key figures within target", _and(*_counted(found)), kind)


def _counted(figures: Sequence[str]) -> list[str]:
    return [f"{figures.count(status)} {status}" for status in ("alert", "short") if status in figures]


def _tile(figure: str, what: str, more: str, kind: str) -> Markup:
    return tag("div", tag("strong", figure), tag("span", what), tag("small", more), class_=f"tile {kind}".strip())


def _facts(report: Report) -> Markup:
    machine = report.machine
    minutes, seconds = divmod(round(sum(result.seconds for result in report.results)), 60)
    facts = {
        "Command": tag("code", report.command),
        "Commit": tag("code", machine.commit) if machine.commit else "not a checkout",
        "System": f"{machine.system}, load average {machine.load:.2f} before the run",
        "Measured for": f"{minutes} min {seconds} s",
        "Versions": ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
    }
    return tag("dl", *(joined(tag("dt", name), tag("dd", value)) for name, value in facts.items()))


def _and(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
