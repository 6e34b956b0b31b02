"""Roofline plot: operations per byte against operations per second, below the machine's two limits."""

from __future__ import annotations

from velocirl.bench.machine.peaks import Peak
from velocirl.bench.reports.roofline import Point, points
from velocirl.bench.results import Report
from velocirl.bench.units import FLOPS, significant
from velocirl.monitor.markup import Markup, percent, tag
from velocirl.monitor.pages.shapes import chart, horizontal, vertical
from velocirl.monitor.scales import Scale, logarithmic

HEIGHT, MOST = 380.0, 30


def roofline_plot(report: Report) -> Markup:
    """Build the plot and the key of its numbers; empty if no implementation has both costs known."""
    found = sorted(points(report), key=lambda point: -point.share.of_peak)[:MOST]
    if not found:
        return Markup()
    key = [
        tag(
            "li",
            tag("b", point.benchmark),
            f" {point.contestant}: {FLOPS.say(point.operations_per_second)}, ",
            tag("b", f"{point.share.of_peak:.0%}"),
            f" of what {point.share.bound} allows",
        )
        for point in found
    ]
    lead = (
        "Each point is one contestant: how much it computes for each byte that it moves, and how fast. On the left the"
        " line is as high as memory allows, on the right as arithmetic does."
    )
    head = tag("header", tag("h4", "Roofline"))
    return tag(
        "article", head, tag("p", lead, class_="notes"), _plot(found), tag("ol", *key, class_="key"), class_="card"
    )


def _plot(found: list[Point]) -> Markup:
    peaks = list({(peak.device, peak.cores): peak for peak in (point.peak for point in found)}.values())
    ridges = [peak.operations_per_second / peak.bytes_per_second for peak in peaks]
    across = logarithmic([*(point.intensity for point in found), *(3.0 * ridge for ridge in ridges)], 3.0, 97.0)
    reached = [point.operations_per_second for point in found]
    up = logarithmic([*reached, *(peak.operations_per_second * 1.3 for peak in peaks)], HEIGHT - 26.0, 12.0)
    parts = [*_grid(across, up)]
    for peak in peaks:
        parts += _roof(peak, across, up)
    for place, point in enumerate(found, 1):
        x, y = across(point.intensity), up(point.operations_per_second)
        title = f"{point.benchmark}, {point.contestant}: {point.share.of_peak:.0%}"
        circle = tag("circle", cx=percent(x), cy=y, r=9, class_="numbered")
        parts.append(
            tag(
                "g",
                tag("title", title),
                circle,
                tag("text", str(place), x=percent(x), y=y + 3.5, text_anchor="middle", class_="inside"),
            )
        )
    return chart("roofline", HEIGHT, *parts)


def _grid(across: Scale, up: Scale) -> list[Markup]:
    parts = []
    for tick in up.ticks(6):
        parts += [horizontal(0.0, 100.0, up(tick), "grid"), tag("text", FLOPS.say(tick), x=0, y=up(tick) - 3.0)]
    for tick in across.ticks(6):
        x, said = across(tick), f"{tick:g}" if tick < 1.0 else significant(tick).removesuffix(".00").removesuffix(".0")
        parts += [
            vertical(x, 12.0, HEIGHT - 26.0, "grid"),
            tag("text", said, x=percent(x), y=HEIGHT - 13.0, text_anchor="middle"),
        ]
    parts.append(tag("text", "operations per byte", x="100%", y=HEIGHT - 2.0, text_anchor="end"))
    return parts


def _roof(peak: Peak, across: Scale, up: Scale) -> list[Markup]:
    """Draw the limit of memory as a slope, then the limit of arithmetic as a horizontal line."""
    ridge = peak.operations_per_second / peak.bytes_per_second
    begin = max(across.low, up.low / peak.bytes_per_second)
    corner = min(max(ridge, begin), across.high)
    x1, y1 = across(begin), up(begin * peak.bytes_per_second)
    x2, y2 = across(corner), up(min(corner * peak.bytes_per_second, peak.operations_per_second))
    cores = "GPU" if peak.device == "cuda" else f"{peak.cores} core{'s' if peak.cores > 1 else ''}"
    said = f"{cores}: {FLOPS.say(peak.operations_per_second)}"
    return [
        tag("line", x1=percent(x1), y1=y1, x2=percent(x2), y2=y2, class_="roof"),
        horizontal(x2, across.end, y2, "roof"),
        tag("text", said, x=percent(across.end), y=y2 - 5.0, text_anchor="end", class_="roof-name"),
    ]
