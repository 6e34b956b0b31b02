"""Section of machine limits: the fraction of peak performance that each implementation reached."""

from __future__ import annotations

from velocirl.bench.machine.peaks import Peak, Share
from velocirl.bench.reports.html.roofline_plot import roofline_plot
from velocirl.bench.reports.html.svg import axis, bar
from velocirl.bench.reports.html.words import figure_row
from velocirl.bench.reports.roofline import share_in
from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.statistics import Estimate
from velocirl.bench.units import BYTES_PER_SECOND, FLOPS
from velocirl.monitor.markup import Markup, tag
from velocirl.monitor.pages.words import section
from velocirl.monitor.scales import linear

TITLES = {"arithmetic": "Bound by arithmetic", "memory": "Bound by memory"}


def limit_section(report: Report) -> Markup:
    """Build bars of fractions for both limits, and the roofline; empty if no costs are known."""
    shares = [
        (result, one, share)
        for result in report.results
        for one in result.contestants
        if not one.peer and (share := share_in(result, one, report.peaks)) is not None
    ]
    if not shares or report.peaks is None:
        return Markup()
    lead = (
        "The share of what this machine did at most in this run: products of large matrices, and arrays that no cache"
        " holds. What stays in a cache may move more than memory could."
    )
    cards = []
    for bound, title in TITLES.items():
        found = sorted((row for row in shares if row[2].bound == bound), key=lambda row: -row[2].of_peak)
        if found:
            limits = ", ".join(_says(peak, bound) for peak in report.peaks.all)
            cards.append(_card(title, limits, found))
    return section(
        "limits", "Under the machine's limits", lead, tag("div", *cards, class_="cards"), roofline_plot(report)
    )


def _card(title: str, limits: str, found: list[tuple[Result, Measured, Share]]) -> Markup:
    scale = linear([1.0, *(share.of_peak for _, _, share in found)], 0.0, 100.0, zero=True)
    rows = []
    for result, one, share in found:
        figure = Estimate(share.of_peak, share.of_peak, share.of_peak)
        name = tag("span", tag("b", result.name), f" {one.name}")
        drawing = bar(f"{result.name}, {one.name}: {share.of_peak:.0%}", figure, scale, share.bound)
        rows.append(
            figure_row(name, f"{share.of_peak:.0%}" if share.of_peak >= 0.1 else f"{share.of_peak:.1%}", "", drawing)
        )
    head = tag("header", tag("h4", title, tag("div", tag("small", limits))))
    return tag("article", head, *rows, axis(scale, lambda value: f"{value:.0%}", 4), class_="card")


def _says(peak: Peak, bound: str) -> str:
    most = (
        FLOPS.say(peak.operations_per_second) if bound == "arithmetic" else BYTES_PER_SECOND.say(peak.bytes_per_second)
    )
    cores = "GPU" if peak.device == "cuda" else f"{peak.cores} core{'s' if peak.cores > 1 else ''}"
    return f"{cores} {most}"
