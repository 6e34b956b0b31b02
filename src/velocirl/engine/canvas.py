"""Software canvas for the `draw` function of an environment: anti-aliased, with NumPy alone."""

from __future__ import annotations

from math import atan2, ceil, cos, isqrt, pi, sin
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from velocirl.engine.lettering import SHARES, Label, write
from velocirl.engine.naming import nearest

Color = tuple[int, int, int]

WHITE: Color = (255, 255, 255)
PAPER: Color = (247, 246, 242)
MIST: Color = (226, 229, 233)
STONE: Color = (150, 158, 169)
SLATE: Color = (88, 98, 113)
INK: Color = (37, 43, 54)
SKY: Color = (205, 228, 243)
BLUE: Color = (58, 122, 196)
TEAL: Color = (42, 150, 146)
MEADOW: Color = (163, 201, 133)
GREEN: Color = (92, 158, 92)
AMBER: Color = (240, 175, 56)
ORANGE: Color = (229, 123, 58)
RED: Color = (208, 72, 68)
VIOLET: Color = (128, 98, 178)
WOOD: Color = (166, 124, 82)

OTHER_NAMES = {  # other libraries' names of its methods
    "view": ("clear", "fill", "background", "size", "setup", "camera"),
    "rectangle": ("rect", "box", "square"),
    "disc": ("circle", "ellipse", "dot", "point"),
    "polygon": ("triangle", "poly"),
    "text": ("write", "label", "string", "print"),
}
SCANLINES = 8  # per row of pixels: coverage is exact along x and to 1/8 along y
SEEN = 1 / 255  # a smaller share of a pixel does not change its color


class Canvas:
    """Canvas of shapes in world coordinates, painted one over the other, with texts above all of them.

    `view` comes first: it sets the coordinates and clears the image. Shapes are clipped to the view. A shape with
    non-finite coordinates is skipped, so that a diverged state can still be shown.
    """

    def __init__(self) -> None:
        self.shapes = np.zeros((0, 0, 3), np.uint8)  # the image without its texts
        self.labels: list[Label] = []
        self._written: NDArray[np.uint8] | None = None  # the image with its texts, once it is requested
        self._corner = np.zeros(2)  # the world coordinates of the top left corner
        self._scale = np.ones(2)  # pixels per world unit, along x and downwards

    def __getattr__(self, name: str) -> Any:
        """Raise an AttributeError that suggests the method's name on this canvas."""
        methods = [one for one, value in vars(Canvas).items() if callable(value) and not one.startswith("_")]
        other = next((own for own, others in OTHER_NAMES.items() if name in others), None)
        hint = nearest(name, methods) if other is None else f": it is {other!r}"
        raise AttributeError(f"a canvas has no {name!r}{hint}")

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """Image (height, width, 3)."""
        if not self.labels:
            return self.shapes
        if self._written is None:
            self._written = self.shapes.copy()
            for label in self.labels:
                write(self._written, label)
        return self._written

    def view(
        self,
        left: float,
        right: float,
        bottom: float,
        top: float,
        width: int = 600,
        height: int = 400,
        background: Color = PAPER,
    ) -> None:
        """Start an image of this part of the world; y grows downwards where `bottom` is above `top`."""
        if left == right or bottom == top or width < 1 or height < 1:
            raise ValueError(f"nothing can be seen in view({left}, {right}, {bottom}, {top}, {width}, {height})")
        self.shapes = np.empty((height, width, 3), np.uint8)  # a new array: earlier frames belong to their callers
        self.shapes[:] = np.full((width, 3), background, np.uint8)
        self._corner = np.array([left, top], np.float64)
        self._scale = np.array([width / (right - left), height / (bottom - top)], np.float64)
        self.labels, self._written = [], None

    def rectangle(self, left: float, bottom: float, right: float, top: float, color: Color) -> None:
        """Fill a rectangle with sides along the axes."""
        self.polygon([(left, bottom), (right, bottom), (right, top), (left, top)], color)

    def disc(self, x: float, y: float, radius: float, color: Color) -> None:
        """Fill a circle."""
        self.polygon(self._arc(x, y, radius, 0.0, 2.0 * pi), color)

    def line(self, x1: float, y1: float, x2: float, y2: float, width: float, color: Color) -> None:
        """Draw a straight line with round ends; its width is in world units."""
        direction = atan2(y2 - y1, x2 - x1)
        start = self._arc(x1, y1, 0.5 * width, direction + 0.5 * pi, pi)
        end = self._arc(x2, y2, 0.5 * width, direction - 0.5 * pi, pi)
        self.polygon(start + end, color)

    def polygon(self, points: ArrayLike, color: Color) -> None:
        """Fill a polygon, convex or not, with the corners `points` (corners, 2)."""
        height, width = self._size()
        _check_color(color)
        corners = (np.asarray(points, np.float64) - self._corner) * self._scale
        if not np.isfinite(corners).all():
            return
        row, start, stop, share = _runs(corners, width, height)
        single = stop - start == 1
        self._written = None
        spot = row[single], start[single]
        self.shapes[spot] = _mix(self.shapes[spot], color, share[single][:, None])
        paint = np.full((width, 3), color, np.uint8)
        longer = (values[~single].tolist() for values in (row, start, stop, share))
        for y, left, right, part in zip(*longer, strict=True):
            run = self.shapes[y, left:right]
            run[:] = paint[left:right] if part > 1 - SEEN else _mix(run, color, part)

    def text(self, x: float, y: float, text: object, size: float, color: Color, align: str = "left") -> None:
        """Write text above all shapes; it begins at x, or is centered there or ends there with align="center", "right".

        y is the middle of its first line, `size` the height of a capital letter in world units. A terminal shows small
        text as its own characters.
        """
        self._size()
        _check_color(color)
        if align not in SHARES:
            raise ValueError(f"align={align!r} is unknown: use {', '.join(SHARES)}")
        place = (np.array([x, y], np.float64) - self._corner) * self._scale
        height = abs(size * self._scale[1])
        if np.isfinite([*place, height]).all() and height > 0:
            self.labels.append(Label(place[0], place[1], str(text), height, color, align))
            self._written = None

    def ansi(self, columns: int = 60) -> str:
        """Format the image as text for a terminal with 24-bit colors."""
        self._size()
        return half_blocks(self.pixels, columns)

    def _size(self) -> tuple[int, int]:
        height, width, _ = self.shapes.shape
        if not self.shapes.size:
            raise RuntimeError("call canvas.view(left, right, bottom, top) before using the canvas")
        return height, width

    def _arc(self, x: float, y: float, radius: float, start: float, turn: float) -> list[tuple[float, float]]:
        """Return points along a circle, in steps so small that the corners do not show."""
        reach = radius * float(np.abs(self._scale).max())  # in pixels
        count = ceil(turn * (2 + isqrt(int(min(1e4, reach)))))
        angles = (start + turn * corner / count for corner in range(count + 1))
        return [(x + radius * cos(angle), y + radius * sin(angle)) for angle in angles]


def _check_color(color: Color) -> None:
    if np.shape(color) != (3,):
        raise ValueError(f"a color is (red, green, blue), each from 0 to 255, and not {color!r}")


def _runs(corners: NDArray[np.float64], width: int, height: int) -> tuple[NDArray[Any], ...]:
    """Return the runs of pixels that a polygon covers by the same share: their row, start, stop and share.

    Each edge is cut by the scanlines. A crossing at x covers all pixels on its right, the one it falls in partly. The
    next crossing in the opposite direction takes this coverage back.
    """
    following = np.roll(corners, -1, axis=0)
    down = following[:, 1] > corners[:, 1]
    upper = np.where(down[:, None], corners, following)
    lower = np.where(down[:, None], following, corners)

    first, last = (np.ceil(np.clip(end[:, 1], 0, height) * SCANLINES - 0.5).astype(int) for end in (upper, lower))
    counts = last - first
    edge = np.repeat(np.arange(len(corners)), counts)
    scanline = np.arange(len(edge)) + np.repeat(first - np.cumsum(counts) + counts, counts)

    rise = lower - upper
    slope = rise[edge, 0] / rise[edge, 1]
    x = np.clip(upper[edge, 0] + slope * ((scanline + 0.5) / SCANLINES - upper[edge, 1]), 0, width)
    column = np.minimum(x.astype(int), width - 1)
    weight = np.where(down, 1 / SCANLINES, -1 / SCANLINES)[edge]
    rest = weight * (x - column)

    cell = (scanline // SCANLINES) * (width + 1) + column  # one more column: the area right of the image
    cells = np.append(cell, cell + 1)
    order = np.argsort(cells, kind="stable")
    cells = cells[order]
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    jumps = np.add.reduceat(np.append(weight - rest, rest)[order], starts)
    share = np.minimum(np.abs(np.cumsum(jumps)), 1.0)
    row, start = np.divmod(cells[starts], width + 1)
    stop = start + np.diff(cells[starts], append=0)  # the last run is wrong but not drawn: its coverage is zero
    seen = share > SEEN
    return row[seen], start[seen], stop[seen], share[seen]


def _mix(under: NDArray[np.uint8], color: Color, share: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return np.rint(under + (np.array(color, np.float64) - under) * share)


def half_blocks(pixels: NDArray[np.uint8], columns: int) -> str:
    """Format an image (height, width, 3) as terminal text with 24-bit colors: each half block shows two pixels."""
    height, width, _ = pixels.shape
    columns = max(1, min(columns, width))
    colors = averaged(pixels, 2 * max(1, round(columns * height / width / 2)), columns)
    lines = []
    for upper, lower in zip(colors[0::2], colors[1::2], strict=True):
        cells = (
            f"\x1b[38;2;{r};{g};{b};48;2;{R};{G};{B}m▀"
            for (r, g, b), (R, G, B) in zip(upper.tolist(), lower.tolist(), strict=True)
        )
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)


def averaged(pixels: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """Resize an image (height, width, 3) to (rows, columns, 3), by means of its pixels or by repeating them."""
    tops, heights = _parts(pixels.shape[0], rows)
    lefts, widths = _parts(pixels.shape[1], columns)
    sums = np.add.reduceat(np.add.reduceat(pixels, tops, axis=0, dtype=np.uint32), lefts, axis=1)
    return np.rint(sums / (heights[:, None] * widths)[:, :, None]).astype(np.uint8)


def _parts(length: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide a length into `count` nearly equal parts; returns their starts and sizes."""
    edges = np.arange(count + 1) * length // count
    return np.minimum(edges[:-1], length - 1), np.maximum(np.diff(edges), 1)
