"""Trends as an image: the results with their intervals, and a line wherever the level changed."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from velocirl.bench.history.trends import Trend
from velocirl.cli.bench.history_words import say_commit, say_ratio
from velocirl.engine.disk.writing import write_shared
from velocirl.runs.curves.curve import BLUE, FAINT, INK

MOST_TRENDS = 24
GREEN, RED = "#2f8f5b", "#c23b3b"


def write_picture(path: Path, trends: Sequence[Trend]) -> None:
    """Draw the trends below each other, as a PNG."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError('--png needs matplotlib: pip install "velocirl[plots]"')
    if not trends:
        raise ValueError("--png: the history has nothing to draw yet")
    if len(trends) > MOST_TRENDS:
        raise ValueError(f"--png draws at most {MOST_TRENDS} trends, these are {len(trends)}: name one benchmark")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.6 * len(trends) + 0.4), dpi=120, layout="constrained")
    for axes, one in zip(figure.subplots(len(trends), squeeze=False)[:, 0], trends, strict=True):
        _draw(axes, one)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor="white")
    write_shared(path, [picture.getbuffer()])


def _draw(axes: Any, trend: Trend) -> None:
    numbers = list(range(1, len(trend.points) + 1))
    lows, highs = ([getattr(point, bound) for point in trend.points] for bound in ("low", "high"))
    axes.vlines(numbers, lows, highs, color=BLUE, alpha=0.4, linewidth=2)
    axes.plot(numbers, [point.median for point in trend.points], color=BLUE, linewidth=1.2, marker="o", markersize=4)
    for change in trend.changes:
        colour = RED if change.worse else GREEN
        axes.axvline(change.place + 0.5, color=colour, linewidth=1.2, linestyle="--")
        words, style = f" {say_ratio(change)}\n {say_commit(change.began)}", {"fontsize": 8, "parse_math": False}
        axes.text(
            change.place + 0.5, 0.98, words, color=colour, va="top", transform=axes.get_xaxis_transform(), **style
        )
    title = f"{trend.benchmark}, {trend.contestant}"
    axes.set_title(title, loc="left", color=INK, fontsize=10, fontweight="bold", parse_math=False)
    axes.set_xlabel("run" if not trend.note else f"run ({trend.note})", color=INK, fontsize=8, parse_math=False)
    axes.yaxis.set_major_formatter(lambda value, _: trend.unit.say(value) if value else "0")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlim(0.5, len(numbers) + 0.5)
    axes.margins(y=0.15)
    axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(color=FAINT, labelcolor=INK, labelsize=8)
