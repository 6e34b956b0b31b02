"""Table of key figures, each on a scale with its target and alert level."""

from __future__ import annotations

from velocirl.bench.reports.kpis import Reading, readings
from velocirl.bench.results import Report
from velocirl.monitor.markup import Markup, joined, pill, table, tag
from velocirl.monitor.pages.shapes import box, chart, vertical
from velocirl.monitor.pages.words import section
from velocirl.monitor.scales import Scale

KINDS = {"met": "good", "short": "fair", "alert": "bad"}
HEIGHT = 22.0


def key_figure_section(report: Report) -> Markup:
    """Build the table of measured key figures."""
    rows = [_row(reading) for reading in readings(report) if reading.estimate is not None]
    if not rows:
        return Markup()
    lead = "What a user notices. Green is within the target, red beyond the alarming level; the needle is the figure."
    headings = ["figure", "measured", "target", "alert", "", "state"]
    return section("key-figures", "Key figures", lead, table(headings, rows, numeric={1, 2, 3}, class_="key-figures"))


def _row(reading: Reading) -> list[str]:
    indicator = reading.indicator
    source = tag("div", f"{reading.benchmark}: {reading.contestant}", class_="source")
    name = joined(tag("b", indicator.name), tag("small", f" {indicator.what}"), source)
    state = pill(reading.status, KINDS[reading.status])
    return [name, tag("b", reading.says_measured), reading.says_target, reading.says_alert, gauge(reading), state]


def gauge(reading: Reading) -> Markup:
    """Draw a gauge from good to bad with a needle; logarithmic, extended beyond the limits as far as needed."""
    indicator = reading.indicator
    limits = (indicator.target, indicator.alert)
    seen = limits if reading.estimate is None or reading.estimate.median <= 0.0 else (*limits, reading.estimate.median)
    low, high = min(limits) / 10.0, max(limits) * 4.0
    low, high = max(min(*seen, low), low / 1e6), min(max(*seen, high), high * 1e6)
    if indicator.unit.more_is_better:  # good is always on the left
        scale = Scale(low, high, 100.0, 0.0, logarithmic=True)
    else:
        scale = Scale(low, high, 0.0, 100.0, logarithmic=True)
    target, alert = scale(indicator.target), scale(indicator.alert)
    zones = ((0.0, target, "good"), (target, alert, "fair"), (alert, 100.0, "bad"))
    parts = [box(begin, end, 7.0, 8.0, f"zone {kind}") for begin, end, kind in zones]
    if reading.estimate is not None:
        at = min(max(scale(reading.estimate.median), 1.0), 99.0)
        parts.append(vertical(at, 1.0, HEIGHT - 1.0, "needle"))
    label = f"{indicator.name}: {reading.says_measured}, target {reading.says_target}"
    return chart(label, HEIGHT, *parts, class_="chart gauge")
