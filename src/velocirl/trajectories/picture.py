"""Trajectory as a PNG image: every quantity against time, with its limits; needs matplotlib."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from math import ceil
from typing import Any

from velocirl.runs.curves.characters import say_tick
from velocirl.runs.curves.curve import FAINT, INK, PALETTE
from velocirl.trajectories.panels import Panel, by_episode, headline, panels_of
from velocirl.trajectories.trajectory import Trajectory

RED = "#c23b3b"  # for limits, not for lines
COLORS = [color for color in PALETTE if color != RED]
COLUMNS, WIDTH, HEIGHT = 3, 4.4, 2.3  # panels per row, and inches of each panel
LEGEND = 0.9  # inches above and below them


def as_png(trajectory: Trajectory) -> bytes:
    """Plot the first episodes, superimposed; limits are dashed, and times beyond them are red."""
    require_matplotlib()
    from matplotlib.figure import Figure

    episodes = by_episode(trajectory)
    panels = panels_of(episodes)
    columns = min(COLUMNS, len(panels))
    rows = ceil(len(panels) / columns)
    # A separate figure, not pyplot's: a notebook's figures and backend stay as they are.
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows + LEGEND), dpi=110, layout="constrained")
    for place, panel in enumerate(panels):
        _draw(figure.add_subplot(rows, columns, place + 1), panel)
    _entitle(figure, trajectory, list(episodes), panels)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor="white")
    return picture.getvalue()


def require_matplotlib() -> None:
    """Raise if matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError('pictures need matplotlib: pip install "velocirl[plots]"')


def _draw(axes: Any, panel: Panel) -> None:
    for begin, end in panel.violated:
        axes.axvspan(begin, end, color=RED, alpha=0.15, linewidth=0)
        axes.axvline(begin, color=RED, alpha=0.5, linewidth=0.8)  # one step is narrower than a pixel
    for limit in panel.limits:
        axes.plot(limit.time, limit.values, color=RED, linewidth=1.2, linestyle="--")
    for place, line in enumerate(panel.lines):
        style = "steps-pre" if panel.held else "default"
        alone = "o" if len(line.time) == 1 else None
        axes.plot(line.time, line.values, color=COLORS[place], linewidth=1.3, drawstyle=style, marker=alone)
    for place, target in enumerate(panel.set_points):
        color = COLORS[place] if len(panel.set_points) > 1 else INK
        axes.plot(target.time, target.values, color=color, linewidth=1.4, linestyle=(0, (2, 1.5)), zorder=3)
    unit = f" [{panel.unit}]" if panel.unit not in ("", "1") else ""
    kind = ", actuator" if panel.kind == "actuator" else ""
    axes.set_title(f"{panel.title}{unit}{kind}", loc="left", color=INK, fontsize=10, parse_math=False)
    axes.set_xlabel(f"time [{panel.time_unit}]", color=INK, fontsize=8)
    axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(color=FAINT, labelcolor=INK, labelsize=8)
    axes.margins(x=0.02, y=0.08)
    axes.yaxis.set_major_formatter(lambda value, _: say_tick(value, max(map(abs, axes.yaxis.get_view_interval()))))


def _entitle(figure: Any, trajectory: Trajectory, names: Sequence[str], panels: Sequence[Panel]) -> None:
    """Add the title and the legend."""
    from matplotlib.lines import Line2D

    keys = [Line2D([], [], color=color, linewidth=1.8) for color, _ in zip(COLORS, names, strict=False)]
    named = list(names)
    if any(panel.set_points for panel in panels):
        keys.append(Line2D([], [], color=INK, linewidth=1.4, linestyle=(0, (2, 1.5))))
        named.append("set point")
    if any(panel.limits for panel in panels):
        keys.append(Line2D([], [], color=RED, linewidth=1.2, linestyle="--"))
        named.append("limit")
    figure.suptitle(
        headline(trajectory), x=0.01, ha="left", color=INK, fontsize=13, fontweight="bold", parse_math=False
    )
    if len(named) > 1:
        figure.legend(keys, named, loc="outside lower center", ncols=len(named), frameon=False, labelcolor=INK)
