"""Line plots as inline SVG: lines stretch with the width of the page, labels keep their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.monitor.markup import Markup, number, percent, tag
from velocirl.monitor.pages.shapes import chart, horizontal, vertical
from velocirl.monitor.scales import Scale
from velocirl.runs.curves.characters import say_tick

Array = NDArray[Any]
ACROSS = 1000.0  # units of the lines' own coordinate system
BELOW = 24.0  # units of height for the labels below
MOST_POINTS = 1000  # of a line


@dataclass(frozen=True)
class Plane:
    """Coordinate system of lines: `across` maps to 0 ... ACROSS, `up` to heights."""

    across: Scale
    up: Scale
    height: float
    left: float = 7.0  # the extent of the lines, in percent of the width
    right: float = 99.0
    levels: int = 6  # approximate number of labels on each axis
    marks: int = 6
    across_unit: str = ""  # appended to the last label below

    def drawn(self, label: str, parts: Sequence[Markup]) -> Markup:
        """Build a chart from parts that were made for this plane."""
        space = tag(
            "svg",
            *parts,
            x=percent(self.left),
            width=percent(self.right - self.left),
            height=self.height,
            viewBox=f"0 0 {number(ACROSS)} {number(self.height)}",
            preserveAspectRatio="none",
        )
        return chart(label, self.height + BELOW, *self._levels(), *self._marks(), space)

    def line(self, x: Array, y: Array, class_: str, name: str, most: int = MOST_POINTS) -> Markup:
        """Draw a line through points; beyond `most` points, the minimum and maximum of each chunk."""
        x, y = thinned(x, y, most)
        if len(x) == 1:  # a line from a point to itself is drawn as a dot
            x, y = np.repeat(x, 2), np.repeat(y, 2)
        title = tag("title", name)
        points = self._places(x, y)
        return tag("polyline", title, points=points, class_=class_, vector_effect="non-scaling-stroke")

    def band(self, x: Array, low: Array, high: Array, class_: str) -> Markup:
        """Draw the area between two lines."""
        points = self._places(np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]]))
        return tag("polygon", points=points, class_=class_)

    def stretch(self, begin: float, end: float, class_: str, name: str) -> Markup:
        """Shade a range of the x-axis, wide enough to be visible."""
        left, right = self.across(begin), self.across(end)
        title = tag("title", name)
        return tag("rect", title, x=left, y=0, width=max(right - left, 2.0), height=self.height, class_=class_)

    def upright(self, x: float, class_: str, name: str) -> Markup:
        """Draw a vertical line at a position on the x-axis."""
        ends = {"x1": self.across(x), "x2": self.across(x), "y1": 0, "y2": self.height}
        return tag("line", tag("title", name), class_=class_, vector_effect="non-scaling-stroke", **ends)

    def _places(self, xs: Array, ys: Array) -> str:
        points = zip(xs, ys, strict=True)
        return " ".join(f"{number(self.across(float(x)))},{number(self.up(float(y)))}" for x, y in points)

    def _levels(self) -> list[Markup]:
        """Draw horizontal lines at round values, with labels on the left."""
        largest, parts = max(abs(self.up.low), abs(self.up.high)), []
        for tick in self.up.ticks(self.levels):
            place = {"x": percent(self.left - 0.8), "y": self.up(tick) + 4.0}
            label = tag("text", say_tick(tick, largest), text_anchor="end", **place)
            parts += [horizontal(self.left, self.right, self.up(tick), "grid"), label]
        return parts

    def _marks(self) -> list[Markup]:
        """Draw the labels below."""
        parts = []
        ticks = list(self.across.ticks(self.marks))
        for tick in ticks:
            at = self.left + (self.right - self.left) * self.across(tick) / ACROSS
            anchor = "end" if at > 96.0 else "middle"
            words = say_tick(tick, self.across.high)
            if self.across_unit and tick == ticks[-1]:
                words = f"{words} {self.across_unit}"
            text = tag("text", words, x=percent(at), y=self.height + 18.0, text_anchor=anchor)
            parts += [vertical(at, self.height, self.height + 4.0, "grid"), text]
        return parts


def thinned(x: Array, y: Array, most: int) -> tuple[Array, Array]:
    """Reduce a line to about `most` points: the minimum and maximum of each chunk, so that no peak is lost."""
    if len(x) <= most:
        return x, y
    shares = np.array_split(np.arange(len(x)), max(most // 2, 1))
    chosen = sorted({int(share[place]) for share in shares for place in (y[share].argmin(), y[share].argmax())})
    return x[chosen], y[chosen]
