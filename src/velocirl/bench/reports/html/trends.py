"""Section of trends: values from run to run, and changes of their level."""

from __future__ import annotations

from collections.abc import Iterator

from velocirl.bench.history.rows import identity_of
from velocirl.bench.history.runs import History
from velocirl.bench.history.trends import ChangePoint, Trend, trend
from velocirl.bench.reports.html.svg import Mark, line_chart
from velocirl.bench.reports.html.words import plain
from velocirl.bench.results import Report
from velocirl.monitor.markup import Markup, joined, pill, tag
from velocirl.monitor.pages.words import section

RUNS, FEWEST = 60, 2  # maximum and minimum number of runs in a chart


def trend_section(report: Report, history: History | None) -> Markup:
    """Build a chart for the first own implementation of each benchmark, and for others whose level changed."""
    if history is None:
        return Markup()
    found = sorted(_trends(report, history), key=lambda one: not one.changes)  # changed trends first
    cards = [_card(one) for one in found]
    if not cards:
        return Markup()
    lead = (
        f"The last {RUNS} runs at most, on this machine, oldest on the left. A dashed line is where a new level began:"
        " green is better, red is worse."
    )
    return section("trends", "Trends", lead, tag("div", *cards, class_="cards"))


def _trends(report: Report, history: History) -> Iterator[Trend]:
    machine = identity_of(report.machine)
    known = history.benchmarks(machine)
    for result in report.results:
        names = history.contestants(result.name, machine, peers=False) if result.name in known else []
        for place, name in enumerate(names):
            found = trend(history, result.name, name, machine=machine, last=RUNS)
            if len(found.points) >= FEWEST and (not place or found.changes):
                yield found


def _card(found: Trend) -> Markup:
    points = [(one.estimate, _title(found, place)) for place, one in enumerate(found.points)]
    # A level that began before the first displayed run has no position on the chart.
    marks = [Mark(one.place, _kind(one), _says(one)) for one in found.changes if one.place > 0]
    drawing = line_chart(f"trend of {found.benchmark}", points, marks, lambda value: plain(found.unit, value))
    latest = found.points[-1]
    head = tag("h4", found.benchmark, " ", tag("small", found.contestant))
    better = "more is better" if found.unit.more_is_better else "less is better"
    notes = [tag("p", pill(_change(one), _kind(one)), " ", _says(one), class_="trend-note") for one in found.changes]
    if found.note:
        notes.append(tag("p", found.note, class_="trend-note"))
    words = joined(tag("b", found.unit.say(latest.median)), f" in the latest of {len(found.points)} runs")
    return tag(
        "article",
        tag("header", head, tag("span", better, class_="better")),
        drawing,
        tag("p", words, class_="trend-note"),
        *notes,
        class_="card",
    )


def _title(found: Trend, place: int) -> str:
    point = found.points[place]
    commit = f", commit {point.run.commit[:12]}" if point.run.commit else ""
    return f"{found.unit.say(point.median)}, {point.run.started.replace('T', ' ')}{commit}"


def _kind(change: ChangePoint) -> str:
    return "bad" if change.worse else "good"


def _change(change: ChangePoint) -> str:
    return f"{change.ratio.median - 1.0:+.1%}"


def _says(change: ChangePoint) -> str:
    began = f"began with {change.began[:12]}" if change.began else f"began with the run of {change.started}"
    before = f", the last run before is of {change.before[:12]}" if change.before else ""
    versions = f"; {', '.join(change.versions)}" if change.versions else ""
    return f"{began}{before}{versions}"
