"""Image of a grid world: the best action of each cell as an arrow, over the color of its value."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.cli.table.grid import CLIFF, GOAL, HOLE, PLAIN, WALL, Grid
from velocirl.engine.disk.writing import write_shared

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# From the lowest to the highest value: viridis, whose colors differ in grayscale too.
COLOURS = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], np.float64)
TILES = {CLIFF: (20, 20, 24), GOAL: (200, 40, 60), HOLE: (20, 30, 60), WALL: (95, 95, 100)}  # colors of tiles
OTHER = (60, 60, 64)
ARROWS, ASCII_ARROWS = "↖↑↗←•→↙↓↘", "\\^/<o>/v\\"  # by change of row and column, from -1 to 1
WIDE, NARROW = 8, 3  # columns of a cell, with its value and without
LEGEND = 24  # columns


class Picture(NamedTuple):
    """Contents of the image of a table."""

    grid: Grid
    values: NDArray[np.float64]  # (rows, columns): of the best action
    best: NDArray[np.int64]  # (rows, columns)
    learnt: NDArray[np.bool_]  # (rows, columns): whether any action value was learned


def make_picture(grid: Grid, values: NDArray[Any], initial: float) -> Picture:
    """Build the image from action values (states, actions); cells without learned values (walls) show their tile."""
    values = values.reshape(*grid.states.shape, -1)
    learnt = (values != np.asarray(initial, values.dtype)).any(axis=-1)
    return Picture(grid, values.max(axis=-1).astype(np.float64), values.argmax(axis=-1), learnt)


def show_picture(console: Console, picture: Picture) -> None:
    """Print the image: with values if they fit, in color if the console has any."""
    plain = console.options.ascii_only
    rows, columns = picture.grid.states.shape
    width = WIDE if columns * WIDE <= console.width else NARROW
    for row in range(rows):
        for line in range(2 if width == WIDE else 1):
            console.print(_line(picture, row, columns, line, width, plain), soft_wrap=True)
    if picture.learnt.any():
        console.print(_legend(picture, coloured=bool(console.color_system) and not console.no_color), soft_wrap=True)


def write_picture(path: Path, picture: Picture, title: str) -> None:
    """Write the image as a PNG, with matplotlib."""
    png = picture_png(picture, title)
    if png is None:
        raise ValueError('--png needs matplotlib: pip install "velocirl[plots]"')
    write_shared(path, [png])


def picture_png(picture: Picture, title: str) -> bytes | None:
    """Draw the image as a PNG; None without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    rows, columns = picture.grid.states.shape
    size = min(max(0.75 * columns, 4.5), 30.0), min(max(0.75 * rows, 2.5) + 0.8, 30.0)
    axes: Any = Figure(figsize=size, dpi=150, layout="constrained").add_subplot()
    axes.imshow(np.array([[_colour(picture, cell) for cell in _cells(row, columns)] for row in range(rows)], np.uint8))
    scale = min(1.0, 60 / max(rows, columns))
    for cell in np.ndindex(rows, columns):
        ink = np.array(_ink(_colour(picture, cell))) / 255
        place, style = (cell[1], cell[0]), {"color": ink, "ha": "center", "va": "center", "parse_math": False}
        if picture.learnt[cell]:
            axes.text(place[0], place[1] - 0.1, _arrow(picture, cell, plain=False), fontsize=20 * scale, **style)
            axes.text(place[0], place[1] + 0.33, _figure(float(picture.values[cell])), fontsize=7 * scale, **style)
        else:
            axes.text(*place, _tile(picture, cell), fontsize=14 * scale, **style)
    axes.set_xticks(np.arange(columns + 1) - 0.5, [])
    axes.set_yticks(np.arange(rows + 1) - 0.5, [])
    axes.grid(color="white", linewidth=1.5 * scale)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)
    picture_bytes = io.BytesIO()
    axes.figure.savefig(picture_bytes, format="png", facecolor="white")
    return picture_bytes.getvalue()


def _line(picture: Picture, row: int, columns: int, line: int, width: int, plain: bool) -> Text:
    """Return one line of a row of cells: arrows and tiles, or the values below them."""
    from rich.text import Text

    text = Text()
    for cell in _cells(row, columns):
        learnt = picture.learnt[cell]
        if line == 1:
            shown = _figure(float(picture.values[cell])) if learnt else ""
        else:
            shown = _arrow(picture, cell, plain) if learnt else _tile(picture, cell)
        text.append(f"{shown:^{width}}", _style(_colour(picture, cell), bold=line == 0))
    return text


def _legend(picture: Picture, *, coloured: bool) -> Text:
    """Return the lowest and the highest value and, with color, the scale between them."""
    from rich.text import Text

    low, high = _range(picture)
    if not coloured:
        return Text(f"values from {_figure(low)} to {_figure(high)}")
    text = Text(f"{_figure(low)} ")
    for share in np.linspace(0, 1, LEGEND):
        text.append(" ", _style(_scaled(float(share)), bold=False))
    return text.append(f" {_figure(high)}")


def _style(colour: tuple[int, int, int], *, bold: bool) -> Any:
    from rich.color import Color
    from rich.style import Style

    return Style(color=Color.from_rgb(*_ink(colour)), bgcolor=Color.from_rgb(*colour), bold=bold)


def _cells(row: int, columns: int) -> list[tuple[int, int]]:
    return [(row, column) for column in range(columns)]


def _colour(picture: Picture, cell: tuple[int, int]) -> tuple[int, int, int]:
    if not picture.learnt[cell]:
        return TILES.get(str(picture.grid.tiles[cell]), OTHER)
    low, high = _range(picture)
    return _scaled((picture.values[cell] - low) / (high - low) if high > low else 1.0)


def _range(picture: Picture) -> tuple[float, float]:
    shown = picture.values[picture.learnt]
    return float(shown.min()), float(shown.max())


def _scaled(share: float) -> tuple[int, int, int]:
    places = np.linspace(0, 1, len(COLOURS))
    red, green, blue = (round(float(np.interp(share, places, COLOURS[:, k]))) for k in range(3))
    return red, green, blue


def _ink(colour: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return black or white, whichever is more readable on a color."""
    red, green, blue = colour
    return (0, 0, 0) if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else (255, 255, 255)


def _arrow(picture: Picture, cell: tuple[int, int], plain: bool) -> str:
    """Return the arrow of an action: one of eight directions, or none."""
    move = picture.grid.moves[picture.best[cell]]
    below, right = np.where(np.abs(move) > np.abs(move).max() / 2, np.sign(move), 0).astype(int)
    return (ASCII_ARROWS if plain else ARROWS)[3 * (below + 1) + right + 1]


def _tile(picture: Picture, cell: tuple[int, int]) -> str:
    tile = str(picture.grid.tiles[cell])
    return "." if tile in PLAIN else tile


def _figure(value: float) -> str:
    """Format a value in at most six characters."""
    limits = ((9.9995, ".3f"), (99.995, ".2f"), (99_999, ".0f"), (np.inf, ".0e"))
    return format(value, next(kind for limit, kind in limits if abs(value) <= limit))
