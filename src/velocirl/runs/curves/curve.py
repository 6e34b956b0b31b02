"""Images of learning curves, drawn by matplotlib if it is installed: of a run, its seeds, or several runs."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velocirl.engine.disk.confined import ConfinedPath
from velocirl.engine.disk.writing import write_whole
from velocirl.runs.curves.characters import NOTHING, say_tick
from velocirl.runs.metrics import DEVIATION, EVALUATION, RETURN, STEP, Row

if TYPE_CHECKING:
    from velocirl.runs.curves.comparing import Curve, Plot, Subject
    from velocirl.runs.seeds import SeedCurve

INK, FAINT, BLUE, ORANGE = "#252b36", "#969ea9", "#3a7ac4", "#e57b3a"
# Colors of several lines, in this order. They differ in lightness too, for color-blind readers.
PALETTE = (BLUE, ORANGE, "#8e4fc0", "#2aa5b5", "#c23b3b", "#64748b", "#8a6d3b", "#d463a8")  # no green: it reads as safe


def draw_curve(rows: Sequence[Row], path: str | Path | ConfinedPath, title: str) -> bool:
    """Draw return over steps as a PNG, with evaluations if there are any; returns False without matplotlib."""
    axes = _new_axes()
    if axes is None:
        return False
    steps, returns = _columns(rows, RETURN)
    axes.plot(steps, returns, color=BLUE, linewidth=1.8, marker="o" if len(steps) == 1 else None, label="training")
    evaluated, means, deviations = _columns(rows, EVALUATION, DEVIATION)
    if evaluated:
        bottom = [mean - spread for mean, spread in zip(means, deviations, strict=True)]
        top = [mean + spread for mean, spread in zip(means, deviations, strict=True)]
        axes.fill_between(evaluated, bottom, top, color=ORANGE, alpha=0.2, linewidth=0)
        axes.plot(evaluated, means, color=ORANGE, linewidth=1.2, marker="o", markersize=4, label="evaluation ± std")
        axes.legend(frameon=False, labelcolor=INK)
    write_whole(path, [_finish(axes, title, empty=not steps and not evaluated)])
    return True


def draw_seeds(
    seeds: Sequence[Sequence[Row]], mean: SeedCurve | None, path: str | Path | ConfinedPath, title: str
) -> bool:
    """Draw each seed's return as a thin line and the mean with its interval; returns False without matplotlib."""
    axes = _new_axes()
    if axes is None:
        return False
    lines = [_columns(rows, RETURN) for rows in seeds]
    for steps, returns in lines:
        axes.plot(steps, returns, color=BLUE, alpha=0.35, linewidth=0.7, marker="." if len(steps) == 1 else None)
    if mean is not None:
        label = f"mean of {mean.count} seeds" if mean.count > 1 else "1 seed"
        if mean.count > 1:  # one seed has no interval
            axes.fill_between(mean.steps, mean.low, mean.high, color=BLUE, alpha=0.2, linewidth=0, label="95% interval")
        axes.plot(mean.steps, mean.mean, color=BLUE, linewidth=1.8, label=label)
        axes.legend(frameon=False, labelcolor=INK)
    write_whole(path, [_finish(axes, title, empty=not any(steps for steps, _ in lines))])
    return True


def plot_png(plot: Plot) -> bytes | None:
    """Draw several runs in one image, seeds with their interval, with a legend; returns None without matplotlib."""
    axes = _new_axes()
    if axes is None:
        return None
    for place, (subject, curve, evaluation) in enumerate(plot.lines):
        color, name = PALETTE[place % len(PALETTE)], legend(subject, curve)
        if curve.low is not None:
            axes.fill_between(curve.x, curve.low, curve.high, color=color, alpha=0.18, linewidth=0)
        axes.plot(curve.x, curve.y, color=color, linewidth=1.8, marker="o" if len(curve.x) == 1 else None, label=name)
        if evaluation is not None:
            dots = {"marker": "o", "markersize": 4, "linestyle": "--"}
            axes.plot(evaluation.x, evaluation.y, color=color, linewidth=1.0, **dots)
    if any(one.evaluation is not None for one in plot.lines):
        axes.plot([], [], color=FAINT, linewidth=1.0, linestyle="--", marker="o", markersize=4, label="evaluation")
    key = axes.legend(frameon=False, labelcolor=INK, fontsize=9)
    for text in key.get_texts():
        text.set_parse_math(False)  # a `$` in a name is no formula
    return _finish(axes, plot.title, empty=False, x_label=plot.x_label, y_label=plot.y_label)


def legend(subject: Subject, curve: Curve) -> str:
    """Return the legend text of a line."""
    return subject.name if curve.seeds == 1 else f"{subject.name}, {curve.seeds} seeds"


def _new_axes() -> Any:
    """Create the axes of a new image; None without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    # Its own figure, not pyplot's: a notebook's figures and backend stay as they are.
    return Figure(figsize=(8, 4.5), dpi=150, layout="constrained").add_subplot()


def _finish(
    axes: Any,
    title: str,
    *,
    empty: bool,
    x_label: str = "environment steps",
    y_label: str = "mean episode return",
) -> bytes:
    """Add title, axes and grid to an image; returns it as PNG bytes."""
    if empty:
        axes.text(0.5, 0.5, NOTHING, transform=axes.transAxes, ha="center", color=FAINT)
        axes.set(xticks=[], yticks=[])
    axes.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold", pad=12, parse_math=False)
    axes.set_xlabel(x_label, color=INK)
    axes.set_ylabel(y_label, color=INK, parse_math=False)
    axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(color=FAINT, labelcolor=INK)
    axes.margins(x=0.02)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _, axis=axis: say_tick(value, max(map(abs, axis.get_view_interval()))))
    picture = io.BytesIO()
    axes.figure.savefig(picture, format="png", facecolor="white")
    return picture.getvalue()


def _columns(rows: Iterable[Row], name: str, *more: str) -> list[list[Any]]:
    """Return steps and metrics of the rows that have metric `name`; a missing metric of `more` is 0."""
    having = [row for row in rows if row.get(name) is not None]
    return [[row.get(column) or 0 for row in having] for column in (STEP, name, *more)]
