"""Section of time fractions of training phases."""

from __future__ import annotations

from velocirl.bench.reports.html.svg import stacked
from velocirl.bench.reports.phase_shares import Segment, phases_of, segments
from velocirl.bench.results import Report
from velocirl.monitor.markup import Markup, tag
from velocirl.monitor.pages.shapes import chart
from velocirl.monitor.pages.words import section, with_code

SHADES = 7  # per color, in the style sheet
COLOURS = {"rollout": "blue", "estimate": "amber", "update": "violet"}


def phase_section(report: Report) -> Markup:
    """Build a bar for each training benchmark that recorded its phases."""
    told = [(result, phases_of(result)) for result in report.results]
    cards = [_card(result.title, segments(phases)) for result, phases in told if phases]
    if not cards:
        return Markup()
    lead = "Counted while training ran: blue is collecting experience, violet the update."
    return section("phases", "Where training spends its time", lead, tag("div", *cards, class_="cards"))


def _card(title: str, parts: list[Segment]) -> Markup:
    kinds = _kinds(parts)
    drawn = [(_name(part), part.share, kind) for part, kind in zip(parts, kinds, strict=True)]
    key = [
        tag(
            "li",
            chart("", 10.0, tag("rect", width=10, height=10, rx=2), class_=f"swatch {kind}"),
            f" {name} ",
            tag("b", f"{share:.1%}"),
        )
        for name, share, kind in drawn
    ]
    return tag(
        "article",
        tag("header", tag("h4", with_code(title))),
        stacked(title, drawn),
        tag("ul", *key, class_="legend"),
        class_="card",
    )


def _kinds(parts: list[Segment]) -> list[str]:
    """Return CSS classes: a color for each phase, a shade for each of its subphases."""
    seen: dict[str, int] = {}
    kinds = []
    for part in parts:
        top = part.path.partition("/")[0]
        shade = seen.get(top, 0)
        seen[top] = shade + 1
        kinds.append(f"{COLOURS.get(top, 'grey')}-{shade % SHADES}")
    return kinds


def _name(part: Segment) -> str:
    return f"{part.path}, the rest" if part.rest else part.path
