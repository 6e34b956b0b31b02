"""Plots made of characters, for any terminal: of braille dots, eight per character, or of ASCII signs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

NOTHING = "no episode has ended yet"
UNITS = ((1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e4, 1e3, "k"), (0.0, 1.0, ""))  # lower bound, divisor, suffix
BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
SIGNS = "*o+x#%&@"  # one per line, where lines have no colors to distinguish them
BLANK = 0x2800  # the braille character without dots; the bits of its dots, by row and column:
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
POINT, LONE = "●", 0x100  # a point not connected to others, and the bit that marks a character holding one
Segment = tuple[str, int | None]  # a text, and the index of the line that it belongs to


class Line(NamedTuple):
    """Points in order of x; points whose y is missing or not finite are skipped."""

    xs: Sequence[float]
    ys: Sequence[float | None]
    joined: bool = True  # whether points are connected by lines

    @property
    def points(self) -> list[tuple[float, float]]:
        """The points that can be drawn."""
        return [(x, y) for x, y in zip(self.xs, self.ys, strict=True) if y is not None and math.isfinite(y)]


def sparkline(values: Sequence[float | None], width: int, *, ascii_only: bool = False) -> str:
    """Format values as one line of at most `width` bars; each bar is the mean of its share, blank without values."""
    width = min(width, len(values))
    shares = [_finite(values[i * len(values) // width : (i + 1) * len(values) // width]) for i in range(width)]
    means = [sum(share) / len(share) if share else None for share in shares]
    bars = ASCII_BARS if ascii_only else BARS
    axis = _Axis.around(_finite(means) or [0.0])
    return "".join(" " if mean is None else bars[axis.place(mean, len(bars))] for mean in means)


def terminal_plot(
    steps: Sequence[float], values: Sequence[float | None], width: int, height: int, *, ascii_only: bool = False
) -> list[str]:
    """Draw a curve and its axes as `height` lines (at least 4) of at most `width` characters (at least 24)."""
    drawn = plot_lines([Line(steps, values)], width, height, signs=ascii_only, ascii_only=ascii_only)
    return ["".join(text for text, _ in line).rstrip() for line in drawn]


def plot_lines(
    lines: Sequence[Line], width: int, height: int, *, signs: bool = False, ascii_only: bool = False
) -> list[list[Segment]]:
    """Draw several curves and their axes as lines of segments; a segment without a curve belongs to the axes.

    Where two curves share a character, the later curve owns it. With `signs`, each curve has its own sign.
    """
    width, rows = max(width, 24), max(height, 4) - 2
    points = [point for line in lines for point in line.points]
    if not points:
        return [[(NOTHING, None)]]
    across, up = _Axis.around([x for x, _ in points]), _Axis.around([y for _, y in points])
    labels = {rows - 1 - up.place(value, rows): label for value, label in up.ticks(max(2, (rows + 1) // 2))}
    margin = max(map(len, labels.values())) + 1
    columns = width - margin - 1
    cells = _Cells(columns, rows, signs=signs)
    for place, line in enumerate(lines):
        cells.draw(line, place, across, up)
    tick, wall, corner, floor, mark = "||+-+" if ascii_only else "┤│└─┬"
    drawn: list[list[Segment]] = [
        [(f"{labels.get(i, ''):>{margin - 1}} {tick if i in labels else wall}", None), *cells.segments(i)]
        for i in range(rows)
    ]
    ground, text = [floor] * columns, [" "] * columns
    for value, label in across.ticks(max(2, columns // 9)):
        column = across.place(value, columns)
        begin = max(0, min(column - len(label) // 2, columns - len(label)))
        ground[column] = mark
        text[begin : begin + len(label)] = label
    below = [" " * margin + corner + "".join(ground), " " * (margin + 1) + "".join(text).rstrip()]
    return [*drawn, *([(one, None)] for one in below)]


def say_tick(value: float, largest: float) -> str:
    """Format a number in the unit that suits `largest`, the largest number on its axis: 0, 500k, 1.5M."""
    unit, suffix = next((unit, suffix) for least, unit, suffix in UNITS if largest >= least)
    return f"{value / unit:.6g}{suffix}" if value else "0"


@dataclass(frozen=True)
class _Axis:
    """Interval that curves cover in one direction; never empty."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float]) -> Self:
        low, high = min(values), max(values)
        size = max(abs(low), abs(high))
        if size < 1e-9:
            return cls(-1.0, 1.0)
        if high - low < 1e-4 * size:  # center a flat line, between labels that differ
            return cls(low - 0.1 * size, high + 0.1 * size)
        # Start at 0 if the lowest value is near it: training starts there, and the label is easy to read.
        return cls(0.0 if 0.0 < low < 0.1 * high else low, high)

    def place(self, value: float, count: int) -> int:
        """Return the index of a value among `count` positions from low to high."""
        return round((value - self.low) / (self.high - self.low) * (count - 1))

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return at most `most` round values, at least one, with their labels."""
        power = 10.0 ** math.floor(math.log10((self.high - self.low) / most))
        for step in (power, 2 * power, 5 * power, 10 * power, 20 * power):
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            if last - first < most:
                break
        return [(n * step, say_tick(n * step, max(abs(self.low), abs(self.high)))) for n in range(first, last + 1)]


class _Cells:
    """Grid of characters: the dots of each character and the line that owns it."""

    def __init__(self, columns: int, rows: int, *, signs: bool) -> None:
        self._columns, self._rows, self._signs = columns, rows, signs
        self._wide, self._high = (1, 1) if signs else (2, 4)
        self._bits = [[0] * columns for _ in range(rows)]
        self._owners: list[list[int | None]] = [[None] * columns for _ in range(rows)]

    def draw(self, line: Line, owner: int, across: _Axis, up: _Axis) -> None:
        """Draw a line, or only its points if it is not joined."""
        wide, high = self._wide * self._columns, self._high * self._rows
        places = [(across.place(x, wide), high - 1 - up.place(y, high)) for x, y in line.points]
        if not line.joined:
            for x, y in places:
                self._dot(x, y, owner, LONE)
            return
        for (x0, y0), (x1, y1) in zip(places, places[1:] or places, strict=False):
            length = max(abs(x1 - x0), abs(y1 - y0), 1)
            for i in range(length + 1):
                self._dot(x0 + round((x1 - x0) * i / length), y0 + round((y1 - y0) * i / length), owner)

    def segments(self, row: int) -> list[Segment]:
        """Return a row of characters; adjacent ones of the same line form one segment."""
        found: list[Segment] = []
        for bits, owner in zip(self._bits[row], self._owners[row], strict=True):
            sign = POINT if bits & LONE else chr(BLANK + bits)
            character = (SIGNS[(owner or 0) % len(SIGNS)] if self._signs else sign) if bits else " "
            if found and found[-1][1] == owner:
                found[-1] = (found[-1][0] + character, owner)
            else:
                found.append((character, owner))
        return found

    def _dot(self, x: int, y: int, owner: int, lone: int = 0) -> None:
        row, column = y // self._high, x // self._wide
        self._bits[row][column] |= lone | (1 if self._signs else DOTS[y % self._high][x % self._wide])
        self._owners[row][column] = owner


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
