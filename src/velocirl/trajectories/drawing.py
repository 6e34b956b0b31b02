"""Trajectories as HTML: a card for each quantity, and the alarm list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from velocirl.monitor.markup import Markup, joined, pill, table, tag
from velocirl.monitor.pages.line_plot import ACROSS, Plane
from velocirl.monitor.scales import linear
from velocirl.trajectories.alarms import Alarm
from velocirl.trajectories.panels import Panel, Trace
from velocirl.trajectories.trajectory import Array

HEIGHT, LEFT = 150.0, 13.0  # of a panel, and percent of its width for the axis labels
KINDS = (0, 1, 2, 3, 5, 6)  # colors of lines: red is for limits
MOST_POINTS = 400  # per line
MOST_ALARMS = 100  # in a list to read


def panel_cards(panels: Sequence[Panel]) -> Markup:
    """Render all panels, in as many columns as fit."""
    return tag("div", *map(_card, panels), class_="cards panels")


def line_legend(names: Sequence[str], *, limits: bool, set_points: bool = False) -> Markup:
    """Render the legend of lines."""
    keys = [tag("li", _key(f"curve thin line-{kind}"), " ", name) for kind, name in zip(KINDS, names, strict=False)]
    if set_points:
        keys.append(tag("li", _key("set-point"), " set point"))
    if limits:
        keys.append(tag("li", _key("limit"), " limit; the time beyond it is red"))
    return tag("ul", *keys, class_="legend")


def alarm_table(alarms: Sequence[Alarm], time_unit: str, *, labels: Sequence[str] = ()) -> Markup:
    """Render the alarms: time, constraint, worst value and duration; `labels` add where each was."""
    if not alarms:
        return tag("p", pill("none", "good"), " No constraint was violated.")
    rows = []
    for place, one in enumerate(alarms[:MOST_ALARMS]):
        kind = pill("critical", "bad") if one.critical else pill("warning", "fair")
        figures = [_figure(one.time), joined(one.constraint.replace("_", " "), " ", kind)]
        figures += [with_unit(one.value, one.unit), with_unit(one.limit, one.unit), _figure(one.duration)]
        rows.append([*labels[place : place + 1], str(one.episode + 1), *figures])
    time = [f"time [{time_unit}]", "constraint", "worst value", "limit", f"duration [{time_unit}]"]
    headings = [*(["where"] if labels else []), "episode", *time]
    right = len(headings)
    shown = table(headings, rows, numeric={right - 5, right - 3, right - 2, right - 1}, class_="sortable")
    left_out = len(alarms) - MOST_ALARMS
    more = tag("p", f"and {left_out} more", class_="trend-note") if left_out > 0 else ""
    return joined(shown, more)


def with_unit(value: float, unit: str) -> str:
    """Format a value with its unit."""
    return f"{_figure(value)} {unit}" if unit not in ("", "1") else _figure(value)


def _figure(value: float) -> str:
    """Format a measured value with a readable number of digits."""
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3e}"


def _card(panel: Panel) -> Markup:
    drawn = [*panel.lines, *panel.limits, *panel.set_points]
    times = [float(end) for one in drawn if len(one.time) for end in (one.time[0], one.time[-1])]
    heights = [float(end) for one in drawn if len(one.values) for end in (one.values.min(), one.values.max())]
    across = linear(times or [0.0], 0.0, ACROSS, zero=True)
    plane = Plane(across, linear(heights, HEIGHT - 4.0, 6.0), HEIGHT, LEFT, levels=4, marks=5)
    parts = [plane.stretch(begin, end, "violated", f"{panel.title} beyond its limit") for begin, end in panel.violated]
    parts += [plane.line(one.time, one.values, "limit", one.name, MOST_POINTS) for one in panel.limits]
    for kind, one in zip(KINDS, panel.lines, strict=False):
        time, values = _held(one) if panel.held else (one.time, one.values)
        if len(time):
            parts.append(plane.line(time, values, f"curve thin line-{kind}", one.name, MOST_POINTS))
    for kind, one in zip(KINDS, panel.set_points, strict=False):
        class_ = f"set-point line-{kind}" if len(panel.set_points) > 1 else "set-point"
        parts.append(plane.line(one.time, one.values, class_, one.name, MOST_POINTS))
    if panel.mark is not None:
        parts.append(plane.upright(panel.mark, "step-mark", "the step"))
    notes = [panel.unit if panel.unit != "1" else "", panel.kind if panel.kind == "actuator" else ""]
    title = tag("h4", panel.title, " ", tag("small", ", ".join(filter(None, notes))))
    label = f"{panel.title} over time in {panel.time_unit}"
    plane = replace(plane, across_unit=panel.time_unit)
    return tag("article", title, plane.drawn(label, parts), class_="card")


def _held(line: Trace) -> tuple[Array, Array]:
    """Return the corners of a line whose values hold since the previous point."""
    if len(line.time) < 2:
        return line.time, line.values
    return np.repeat(line.time, 2)[1:-1], np.repeat(line.values[1:], 2)


def _key(class_: str) -> Markup:
    line = tag("line", x1=0, x2=22, y1=5, y2=5, class_=class_)
    return tag("svg", line, class_="key-line", width=22, height=10, aria_hidden="true")
