"""Charts as inline SVG. Widths are percentages of the container, so that text keeps its size on a narrow screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from velocirl.bench.statistics import Estimate
from velocirl.monitor.markup import Markup, joined, percent, tag
from velocirl.monitor.pages.shapes import box, chart, horizontal, vertical
from velocirl.monitor.scales import Scale, linear

BAR, LINES = 16.0, 190.0  # heights
ROOM = 0.1  # minimum range of a line chart on both sides, as a fraction of the level


@dataclass(frozen=True)
class Mark:
    """Position on a line chart where a level began."""

    at: int  # index of the first point after it
    kind: str  # good or bad
    title: str


def whisker(scale: Scale, found: Estimate, middle: float, half: float) -> Markup:
    """Draw an estimate's interval: a line with two ends."""
    low, high = scale(found.low), scale(found.high)
    ends = joined(*(vertical(x, middle - half, middle + half, "whisker") for x in (low, high)))
    return joined(horizontal(low, high, middle, "whisker"), ends)


def bar(label: str, found: Estimate, scale: Scale, kind: str, target: float | None = None) -> Markup:
    """Draw a value as a bar from zero (logarithmic scale: from one), with its interval and target, if any."""
    origin = scale(1.0 if scale.logarithmic else 0.0)
    back = box(scale.begin, scale.end, 3.0, BAR - 6.0, "track")
    front = box(origin, scale(found.median), 3.0, BAR - 6.0, f"bar {kind}")
    middle = vertical(origin, 0.0, BAR, "origin") if scale.logarithmic else ""
    goal = "" if target is None else tag("g", tag("title", "target"), vertical(scale(target), 0.0, BAR, "target"))
    interval = whisker(scale, found, BAR / 2, 4.0)
    return chart(label, BAR, back, front, interval, middle, goal, class_="chart bar-chart")


def axis(scale: Scale, say: Callable[[float], str], about: int = 5) -> Markup:
    """Draw the axis labels below a column of bars."""
    parts = []
    for tick in scale.ticks(about):
        at = scale(tick)
        anchor = "start" if at < 4.0 else "end" if at > 96.0 else "middle"
        parts += [vertical(at, 0.0, 4.0, "grid"), tag("text", say(tick), x=percent(at), y=16, text_anchor=anchor)]
    return chart("axis", 20.0, *parts, class_="chart axis")


def strip(label: str, samples: Sequence[float], scale: Scale) -> Markup:
    """Draw each sample's deviation as a dot, and a line at zero deviation."""
    dots = [tag("circle", cx=percent(scale(one)), cy=BAR / 2, r=2.6, class_="sample") for one in samples]
    line = horizontal(scale.begin, scale.end, BAR / 2, "grid")
    return chart(label, BAR, line, *dots, vertical(scale(0.0), 1.0, BAR - 1.0, "median"), class_="chart strip")


def stacked(label: str, parts: Sequence[tuple[str, float, str]]) -> Markup:
    """Draw fractions of a whole side by side; each part is (name, fraction, CSS class)."""
    drawn, begin = [], 0.0
    for name, share, kind in parts:
        end = min(begin + 100.0 * share, 100.0)
        drawn.append(box(begin, end, 0.0, 30.0, f"segment {kind}", f"{name}: {share:.1%}"))
        if share >= 0.09:
            place = percent((begin + end) / 2)
            drawn.append(tag("text", f"{share:.0%}", x=place, y=20, text_anchor="middle", class_="inside"))
        begin = end
    return chart(label, 30.0, *drawn, class_="chart stacked")


def line_chart(
    label: str,
    points: Sequence[tuple[Estimate, str]],
    marks: Sequence[Mark],
    say: Callable[[float], str],
) -> Markup:
    """Draw estimates in order with their intervals and titles, and marks where a new level began."""
    across = Scale(0.0, max(len(points) - 1.0, 1.0), 14.0, 97.0)
    bounds = [value for found, _ in points for value in (found.low, found.median, found.high)]
    level = sorted(found.median for found, _ in points)[len(points) // 2]
    # Noise of 1% must look like noise.
    up = linear([*bounds, (1.0 - ROOM) * level, (1.0 + ROOM) * level], LINES - 12.0, 14.0)
    parts = [*_levels(up, say)]
    for mark in marks:
        x = (across(mark.at - 1.0) + across(float(mark.at))) / 2.0
        parts.append(tag("g", tag("title", mark.title), vertical(x, 6.0, LINES - 4.0, f"mark {mark.kind}")))
    places = [(across(float(place)), up(found.median)) for place, (found, _) in enumerate(points)]
    for (x1, y1), (x2, y2) in pairwise(places):
        parts.append(tag("line", x1=percent(x1), x2=percent(x2), y1=y1, y2=y2, class_="path"))
    for (x, y), (found, title) in zip(places, points, strict=True):
        parts.append(vertical(x, up(found.low), up(found.high), "whisker"))
        parts.append(tag("circle", tag("title", title), cx=percent(x), cy=y, r=3.5, class_="point"))
    return chart(label, LINES, *parts)


def _levels(up: Scale, say: Callable[[float], str]) -> list[Markup]:
    """Draw horizontal lines at round values, with labels."""
    parts = []
    for tick in up.ticks(4):
        y = up(tick)
        parts += [horizontal(0.0, 100.0, y, "grid"), tag("text", say(tick), x=0, y=y - 3.0)]
    return parts
