"""A plot as one HTML file, for a browser without a network."""

from __future__ import annotations

import numpy as np

from velocirl.bench.reports.html.page import whole_page
from velocirl.bench.reports.html.svg import chart, horizontal, vertical
from velocirl.bench.reports.html.words import section
from velocirl.cli.plot.words import end_of
from velocirl.monitor.markup import Markup, joined, number, percent, table, tag
from velocirl.monitor.scales import Scale, linear
from velocirl.runs.curves.characters import say_tick
from velocirl.runs.curves.comparing import Array, Curve, Plot, PlotLine
from velocirl.runs.curves.curve import PALETTE, legend

HEIGHT, ROOM = 420.0, 24.0  # of the drawing, and of the figures below it
LEFT, RIGHT = 7.0, 99.0  # percent of the width, between which lines are
ACROSS = 1000.0  # units of the lines' own space, which is as wide as the page lets it be
MOST_POINTS = 1000  # of a line


def plot_page(plotted: Plot) -> str:
    """The page: the lines, and where each of them ends."""
    head = tag("header", tag("h1", plotted.title), tag("p", plotted.y_label, class_="where"), class_="top")
    parts = {
        "curves": ("Curves", section("curves", "Curves", _says(plotted), _card(plotted))),
        "ends": ("Where they end", section("ends", "Where they end", "", _table(plotted))),
    }
    return whole_page(f"velocirl plot: {plotted.title}", parts, head)


def _says(plotted: Plot) -> str:
    words = [f"{plotted.y_label[:1].upper()}{plotted.y_label[1:]} over {plotted.x_label}."]
    if any(one.curve.seeds > 1 for one in plotted.lines):
        words.append(
            "Of several seeds it is their interquartile mean, in a band that is its 95% bootstrap interval, as far as"
            " all of them have come."
        )
    if any(one.evaluation is not None for one in plotted.lines):
        words.append("Dashed lines are evaluations.")
    return " ".join(words)


def _card(plotted: Plot) -> Markup:
    curves = [curve for one in plotted.lines for curve in (one.curve, one.evaluation) if curve is not None]
    across = linear([float(end) for curve in curves for end in (curve.x[0], curve.x[-1])], 0.0, ACROSS, zero=True)
    up = linear(_heights(curves), HEIGHT - 6.0, 10.0)
    drawn = [part for place, one in enumerate(plotted.lines) for part in _lines(one, place, across, up)]
    space = tag(
        "svg",
        *drawn,
        x=percent(LEFT),
        width=percent(RIGHT - LEFT),
        height=HEIGHT,
        viewBox=f"0 0 {number(ACROSS)} {number(HEIGHT)}",
        preserveAspectRatio="none",
    )
    label = f"{plotted.y_label} over {plotted.x_label}"
    drawing = chart(label, HEIGHT + ROOM, *_levels(up), *_marks(across), space)
    keys = [tag("li", _swatch(place), " ", legend(one.subject, one.curve)) for place, one in enumerate(plotted.lines)]
    below = tag("p", plotted.x_label, class_="trend-note")
    return tag("article", drawing, below, tag("ul", *keys, class_="legend"), class_="card")


def _heights(curves: list[Curve]) -> list[float]:
    ends = [values for one in curves for values in (one.y, one.low, one.high) if values is not None]
    return [float(end) for values in ends for end in (values.min(), values.max())]


def _lines(one: PlotLine, place: int, across: Scale, up: Scale) -> list[Markup]:
    kind, parts = f"line-{place % len(PALETTE)}", []
    if one.curve.low is not None and one.curve.high is not None:
        x = np.concatenate([one.curve.x, one.curve.x[::-1]])
        y = np.concatenate([one.curve.low, one.curve.high[::-1]])
        parts.append(tag("polygon", points=_places(x, y, across, up), class_=f"band {kind}"))
    name = tag("title", legend(one.subject, one.curve))
    parts.append(_polyline(one.curve, across, up, f"curve {kind}", name))
    if one.evaluation is not None:
        parts.append(_polyline(one.evaluation, across, up, f"curve dashed {kind}", name))
    return parts


def _polyline(curve: Curve, across: Scale, up: Scale, class_: str, name: Markup) -> Markup:
    every = -(-len(curve.x) // MOST_POINTS)
    x, y = curve.x[::every], curve.y[::every]
    if len(x) == 1:  # a line from a point to itself is seen as a dot
        x, y = np.repeat(x, 2), np.repeat(y, 2)
    return tag("polyline", name, points=_places(x, y, across, up), class_=class_, vector_effect="non-scaling-stroke")


def _places(xs: Array, ys: Array, across: Scale, up: Scale) -> str:
    return " ".join(f"{number(across(float(x)))},{number(up(float(y)))}" for x, y in zip(xs, ys, strict=True))


def _levels(up: Scale) -> list[Markup]:
    """Horizontal lines at round figures, with their figures on the left."""
    largest, parts = max(abs(up.low), abs(up.high)), []
    for tick in up.ticks(6):
        label = tag("text", say_tick(tick, largest), x=percent(LEFT - 0.8), y=up(tick) + 4.0, text_anchor="end")
        parts += [horizontal(LEFT, RIGHT, up(tick), "grid"), label]
    return parts


def _marks(across: Scale) -> list[Markup]:
    """Figures below."""
    parts = []
    for tick in across.ticks(6):
        at = LEFT + (RIGHT - LEFT) * across(tick) / ACROSS
        anchor = "end" if at > 96.0 else "middle"
        text = tag("text", say_tick(tick, across.high), x=percent(at), y=HEIGHT + 18.0, text_anchor=anchor)
        parts += [vertical(at, HEIGHT, HEIGHT + 4.0, "grid"), text]
    return parts


def _swatch(place: int) -> Markup:
    return chart("", 10.0, tag("rect", width=10, height=10, rx=2), class_=f"swatch fill line-{place % len(PALETTE)}")


def _table(plotted: Plot) -> Markup:
    rows = []
    for place, one in enumerate(plotted.lines):
        end = end_of(one, plotted.by)
        name = joined(_swatch(place), " ", one.subject.name, tag("div", one.subject.place, class_="source"))
        figures = [tag("b", end.value), end.interval, end.evaluation, end.where]
        rows.append([name, one.subject.environment, one.subject.algorithm, str(one.curve.seeds), *figures])
    headings = ["run", "environment", "algorithm", "seeds", plotted.y_label, "95% interval", "evaluation", "after"]
    return table(headings, rows, numeric={3, 4, 5, 6, 7}, class_="sortable")
