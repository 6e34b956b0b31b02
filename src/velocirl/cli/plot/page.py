"""A plot as one self-contained HTML file."""

from __future__ import annotations

from velocirl.cli.plot.words import end_of
from velocirl.monitor.markup import Markup, joined, table, tag
from velocirl.monitor.pages.line_plot import ACROSS, Plane
from velocirl.monitor.pages.page import whole_page
from velocirl.monitor.pages.shapes import chart
from velocirl.monitor.pages.words import section
from velocirl.monitor.scales import linear
from velocirl.runs.curves.comparing import Curve, Plot, PlotLine
from velocirl.runs.curves.curve import PALETTE, legend

HEIGHT = 420.0  # of the chart


def plot_page(plotted: Plot) -> str:
    """Build the page: the lines, and a table of their last values."""
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
    plane = Plane(across, linear(_heights(curves), HEIGHT - 6.0, 10.0), HEIGHT)
    drawn = [part for place, one in enumerate(plotted.lines) for part in _lines(one, place, plane)]
    drawing = plane.drawn(f"{plotted.y_label} over {plotted.x_label}", drawn)
    keys = [tag("li", _swatch(place), " ", legend(one.subject, one.curve)) for place, one in enumerate(plotted.lines)]
    below = tag("p", plotted.x_label, class_="trend-note")
    return tag("article", drawing, below, tag("ul", *keys, class_="legend"), class_="card")


def _heights(curves: list[Curve]) -> list[float]:
    ends = [values for one in curves for values in (one.y, one.low, one.high) if values is not None]
    return [float(end) for values in ends for end in (values.min(), values.max())]


def _lines(one: PlotLine, place: int, plane: Plane) -> list[Markup]:
    kind, name, parts = f"line-{place % len(PALETTE)}", legend(one.subject, one.curve), []
    if one.curve.low is not None and one.curve.high is not None:
        parts.append(plane.band(one.curve.x, one.curve.low, one.curve.high, f"band {kind}"))
    parts.append(plane.line(one.curve.x, one.curve.y, f"curve {kind}", name))
    if one.evaluation is not None:
        parts.append(plane.line(one.evaluation.x, one.evaluation.y, f"curve dashed {kind}", name))
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
