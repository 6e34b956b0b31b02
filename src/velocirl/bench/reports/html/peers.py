"""Section of ratios to peer libraries."""

from __future__ import annotations

from velocirl.bench.reports.html.svg import axis, bar
from velocirl.bench.reports.html.words import figure_row
from velocirl.bench.reports.rivals import Rivalry, rivalries
from velocirl.bench.results import Report
from velocirl.bench.units import TIMES, significant
from velocirl.monitor.markup import Markup, tag
from velocirl.monitor.pages.words import section
from velocirl.monitor.scales import logarithmic


def peer_section(report: Report) -> Markup:
    """Build a bar for each pair, from 1 to the right if velocirl is better, otherwise to the left."""
    found = [rivalry for result in report.results for rivalry in rivalries(result)]
    if not found:
        return Markup()
    found.sort(key=lambda rivalry: -rivalry.ratio.median)
    # At least one power of ten on each side, so that a small difference looks small.
    scale = logarithmic([0.5, 2.0, *(value for one in found for value in (one.ratio.low, one.ratio.high))], 0.0, 100.0)
    rows = []
    for one in found:
        drawing = bar(f"{one.ours} over {one.theirs}", one.ratio, scale, _kind(one))
        interval = f"{significant(one.ratio.low)} to {significant(one.ratio.high)}"
        name = tag("span", tag("b", one.benchmark), f" {one.ours} / {one.theirs}")
        rows.append(figure_row(name, TIMES.say(one.ratio.median), interval, drawing))
    better = sum(one.ratio.low > 1.0 for one in found)
    worse = sum(one.ratio.high < 1.0 for one in found)
    lead = (
        f"How many times as good ours is, taken in every round, on a logarithmic scale: {better} better, {worse} worse,"
        f" {len(found) - better - worse} alike within their intervals."
    )
    legend = axis(scale, lambda value: f"{value:g}x", 6)
    return section("peers", "Beside others", lead, tag("article", *rows, legend, class_="card"))


def _kind(one: Rivalry) -> str:
    return "better" if one.ratio.low > 1.0 else "worse" if one.ratio.high < 1.0 else "alike"
