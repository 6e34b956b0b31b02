"""Section of all benchmarks by category, with implementations as bars."""

from __future__ import annotations

from velocirl.bench.registry import CATEGORIES
from velocirl.bench.reports.html.svg import axis, bar
from velocirl.bench.reports.html.words import figure_row, plain, share_note
from velocirl.bench.results import Report, Result
from velocirl.monitor.markup import Markup, joined, pill, tag
from velocirl.monitor.pages.words import section, with_code
from velocirl.monitor.scales import linear


def category_section(report: Report) -> Markup:
    """Build a card for each measured benchmark, grouped by category."""
    measured = [result for result in report.results if any(one.samples for one in result.contestants)]
    if not measured:
        return Markup()
    known = [category for category in CATEGORIES if any(result.category == category for result in measured)]
    names = [*known, *dict.fromkeys(result.category for result in measured if result.category not in CATEGORIES)]
    parts = []
    for category in names:
        cards = [card(report, result) for result in measured if result.category == category]
        what = tag("small", f" {CATEGORIES[category]}") if category in CATEGORIES else ""
        parts.append(joined(tag("h3", category, what), tag("div", *cards, class_="cards")))
    lead = "Medians with their 95% intervals: ours in blue, those of others in grey. A dashed line is a target."
    return section("categories", "By category", lead, *parts)


def card(report: Report, result: Result) -> Markup:
    """Draw the bars of one benchmark on a common scale."""
    found = [(one, one.estimate) for one in result.contestants if one.estimate is not None]
    largest = max((abs(estimate.median) for _, estimate in found), default=0.0)
    goals = {
        finding.statement: finding.target
        for finding in result.findings
        if finding.unit == result.unit and finding.target is not None and abs(finding.target) <= 2.0 * largest
    }
    bounds = [value for _, estimate in found for value in (estimate.median, estimate.high, estimate.low)]
    scale = linear([*bounds, *goals.values()], 0.0, 100.0, zero=True)
    rows = []
    for one, estimate in found:
        figure, kind = result.unit.say(estimate.median), "peer" if one.peer else "own"
        drawing = bar(f"{one.name}: {figure}", estimate, scale, kind, goals.get(one.name))
        rows.append(figure_row(one.name, figure, share_note(report, result, one), drawing))
    better = "more is better" if result.unit.more_is_better else "less is better"
    marks = joined(*(pill(word, kind) for word, kind in _marks(result)))
    head = tag("header", tag("h4", with_code(result.title), " ", marks), tag("span", better, class_="better"))
    return tag("article", head, *rows, axis(scale, lambda value: plain(result.unit, value), 4), class_="card")


def _marks(result: Result) -> list[tuple[str, str]]:
    noisy = any(one.noisy for one in result.contestants)
    marks = (
        (bool(result.error), "error", "bad"),
        (result.interrupted, "interrupted", "fair"),
        (noisy, "noisy", "fair"),
    )
    return [(word, kind) for holds, word, kind in marks if holds]
