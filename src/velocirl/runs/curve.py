"""The learning curve of a run, or of several: a picture where matplotlib is installed, characters in any terminal."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from velocirl.runs.metrics import DEVIATION, EVALUATION, RETURN, STEP, Row
from velocirl.runs.state_file import write_whole

if TYPE_CHECKING:
    from velocirl.runs.seeds import SeedCurve

NOTHING = "no episode has ended yet"
UNITS = ((1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e4, 1e3, "k"), (0.0, 1.0, ""))  # from where, what, and its letter
INK, FAINT, BLUE, ORANGE = "#252b36", "#969ea9", "#3a7ac4", "#e57b3a"
BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
BLANK = 0x2800  # the braille character without dots; the bits of its dots, by row and column:
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def draw_curve(rows: Sequence[Row], path: str | Path, title: str) -> bool:
    """Draw return against steps, with evaluations where there are any, as a PNG; False where matplotlib is missing."""
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
    _finish(axes, path, title, empty=not steps and not evaluated)
    return True


def draw_seeds(seeds: Sequence[Sequence[Row]], mean: SeedCurve | None, path: str | Path, title: str) -> bool:
    """Draw the return of every seed as a thin line, and their mean within its interval; False without matplotlib."""
    axes = _new_axes()
    if axes is None:
        return False
    lines = [_columns(rows, RETURN) for rows in seeds]
    for steps, returns in lines:
        axes.plot(steps, returns, color=BLUE, alpha=0.35, linewidth=0.7, marker="." if len(steps) == 1 else None)
    if mean is not None:
        label = f"mean of {mean.count} seeds" if mean.count > 1 else "1 seed"
        if mean.count > 1:  # one seed says nothing of others
            axes.fill_between(mean.steps, mean.low, mean.high, color=BLUE, alpha=0.2, linewidth=0, label="95% interval")
        axes.plot(mean.steps, mean.mean, color=BLUE, linewidth=1.8, label=label)
        axes.legend(frameon=False, labelcolor=INK)
    _finish(axes, path, title, empty=not any(steps for steps, _ in lines))
    return True


def _new_axes() -> Any:
    """The axes of a new picture, or None where there is nothing to draw with."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    # A figure of its own, not pyplot's: a notebook's figures and backend stay as they are.
    return Figure(figsize=(8, 4.5), dpi=150, layout="constrained").add_subplot()


def _finish(axes: Any, path: str | Path, title: str, *, empty: bool) -> None:
    """Give a picture its title, axes and grid, and write it."""
    if empty:
        axes.text(0.5, 0.5, NOTHING, transform=axes.transAxes, ha="center", color=FAINT)
        axes.set(xticks=[], yticks=[])
    axes.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold", pad=12, parse_math=False)
    axes.set_xlabel("environment steps", color=INK)
    axes.set_ylabel("mean episode return", color=INK)
    axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(color=FAINT, labelcolor=INK)
    axes.margins(x=0.02)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _, axis=axis: _say(value, max(map(abs, axis.get_view_interval()))))
    picture = io.BytesIO()
    axes.figure.savefig(picture, format="png", facecolor="white")
    write_whole(path, [picture.getbuffer()])


def sparkline(values: Sequence[float | None], width: int, *, ascii_only: bool = False) -> str:
    """Values as one line of bars, at most `width` of them, each the mean of its share; a blank where there are none."""
    width = min(width, len(values))
    shares = [_finite(values[i * len(values) // width : (i + 1) * len(values) // width]) for i in range(width)]
    means = [sum(share) / len(share) if share else None for share in shares]
    bars = ASCII_BARS if ascii_only else BARS
    axis = _Axis.around(_finite(means) or [0.0])
    return "".join(" " if mean is None else bars[axis.place(mean, len(bars))] for mean in means)


def terminal_plot(
    steps: Sequence[float], values: Sequence[float | None], width: int, height: int, *, ascii_only: bool = False
) -> list[str]:
    """A curve and its axes as `height` lines (at least 4) of at most `width` characters (at least 24)."""
    width, rows = max(width, 24), max(height, 4) - 2
    points = [(x, y) for x, y in zip(steps, values, strict=True) if y is not None and math.isfinite(y)]
    if not points:
        return [NOTHING]
    across, up = _Axis.around([x for x, _ in points]), _Axis.around([y for _, y in points])
    labels = {rows - 1 - up.place(value, rows): label for value, label in up.ticks(max(2, (rows + 1) // 2))}
    margin = max(map(len, labels.values())) + 1
    columns = width - margin - 1
    cells = _trace(points, across, up, columns, rows, ascii_only)
    tick, wall, corner, floor, mark = "||+-+" if ascii_only else "┤│└─┬"
    lines = [f"{labels.get(i, ''):>{margin - 1}} {tick if i in labels else wall}{cells[i]}" for i in range(rows)]
    line, text = [floor] * columns, [" "] * columns
    for value, label in across.ticks(max(2, columns // 9)):
        column = across.place(value, columns)
        begin = max(0, min(column - len(label) // 2, columns - len(label)))
        line[column] = mark
        text[begin : begin + len(label)] = label
    return [*lines, " " * margin + corner + "".join(line), " " * (margin + 1) + "".join(text).rstrip()]


@dataclass(frozen=True)
class _Axis:
    """The interval that a curve covers in one direction; never empty."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float]) -> Self:
        low, high = min(values), max(values)
        size = max(abs(low), abs(high))
        if size < 1e-9:
            return cls(-1.0, 1.0)
        if high - low < 1e-4 * size:  # a flat line runs through the middle, between labels that differ
            return cls(low - 0.1 * size, high + 0.1 * size)
        # From near 0, from 0: training starts there, and it is a label that everyone understands.
        return cls(0.0 if 0.0 < low < 0.1 * high else low, high)

    def place(self, value: float, count: int) -> int:
        """Which of `count` places from low to high a value falls on."""
        return round((value - self.low) / (self.high - self.low) * (count - 1))

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """At most `most` round values, at least one, with their labels."""
        power = 10.0 ** math.floor(math.log10((self.high - self.low) / most))
        for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            if last - first < most:
                break
        return [(n * step, _say(n * step, max(abs(self.low), abs(self.high)))) for n in range(first, last + 1)]


def _trace(
    points: Sequence[tuple[float, float]], across: _Axis, up: _Axis, columns: int, rows: int, ascii_only: bool
) -> list[str]:
    """The lines between points as rows of characters: of braille dots, eight to a character, or of asterisks."""
    wide, high = (1, 1) if ascii_only else (2, 4)
    places = [(across.place(x, wide * columns), up.place(y, high * rows)) for x, y in points]
    cells = [[0] * columns for _ in range(rows)]
    for (x0, y0), (x1, y1) in zip(places, places[1:] or places, strict=False):
        length = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(length + 1):
            x, y = x0 + round((x1 - x0) * i / length), high * rows - 1 - y0 - round((y1 - y0) * i / length)
            cells[y // high][x // wide] |= 1 if ascii_only else DOTS[y % high][x % wide]
    characters = " *" if ascii_only else " " + "".join(chr(BLANK + bits) for bits in range(1, 256))
    return ["".join(characters[bits] for bits in row).rstrip() for row in cells]


def _say(value: float, largest: float) -> str:
    """A number in the unit of the largest one beside it: 0, 500k, 1.5M."""
    unit, suffix = next((unit, suffix) for least, unit, suffix in UNITS if largest >= least)
    return f"{value / unit:.6g}{suffix}" if value else "0"


def _columns(rows: Iterable[Row], name: str, *more: str) -> list[list[Any]]:
    """The steps and figures of the rows that have a figure of this name; further figures are 0 where missing."""
    having = [row for row in rows if row.get(name) is not None]
    return [[row.get(column) or 0 for row in having] for column in (STEP, name, *more)]


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
