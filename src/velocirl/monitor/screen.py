"""Animation in a terminal: cells of two pixels each; only changed cells are written."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, NamedTuple
from unicodedata import east_asian_width

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.canvas import Canvas, averaged
from velocirl.engine.lettering import Label

OPEN = "\x1b[?1049h\x1b[?25l\x1b[0m\x1b[2J"  # the alternate screen, without a cursor
CLOSE = "\x1b[0m\x1b[?25h\x1b[?1049l"
USUAL_SIZE = 80, 24  # of a terminal that does not report its size
WIDEST = 160  # columns of an image
SPACE, BLOCK = map(ord, " ▀")
PLAIN, INVERTED = -1, -2  # backgrounds other than colors: the default, and the default swapped with the text color
READABLE = 7  # rows of half blocks: text of this height is drawn as pixels, smaller text in terminal characters
LEVELS = np.array([0, 95, 135, 175, 215, 255])  # of red, green and blue in the 256-color palette
STYLED = re.compile(r"\x1b\[([0-9;]*)m|\x1b\[[0-9;?]*[A-Za-z]")

Picture = NDArray[np.uint8] | Canvas | str  # pixels (height, width, 3), pixels with labels, or lines of characters


class _Cells(NamedTuple):
    """Contents of a terminal, each (rows, columns); a color is red * 65,536 + green * 256 + blue, or negative."""

    character: NDArray[np.int32]
    text: NDArray[np.int32]
    background: NDArray[np.int32]


class Screen:
    """Terminal that shows frames: an image with lines below it. While it is open, the shell's lines are hidden."""

    def __init__(self, stream: IO[str], *, truecolor: bool = True) -> None:
        self._stream, self._truecolor = stream, truecolor
        self._shown: _Cells | None = None

    def __enter__(self) -> Screen:
        self._write(OPEN)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._write(CLOSE)
        self._shown = None

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal at this moment."""
        try:
            columns, rows = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return USUAL_SIZE
        return (columns, rows) if columns and rows else USUAL_SIZE

    def show(self, picture: Picture, lines: Sequence[str] = ()) -> int:
        """Show a frame; returns the number of characters written."""
        columns, rows = self.size
        cells = _blank((rows, columns))
        room = max(1, rows - len(lines) - 1)
        put = _put_text if isinstance(picture, str) else self._put_picture
        used = put(cells, picture, room)  # pyright: ignore[reportArgumentType]
        for row, line in enumerate(lines[: rows - used], used):
            _put_line(cells, row, line)
        text = self._difference(cells)
        self._shown = cells
        if text:
            self._write(text)
        return len(text)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _put_picture(self, cells: _Cells, picture: NDArray[np.uint8] | Canvas, room: int) -> int:
        """Fill the cells of an image in the top left corner; returns its number of rows."""
        pixels, labels = (picture.shapes, picture.labels) if isinstance(picture, Canvas) else (picture, [])
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[:, :, None], 3, axis=2)
        height, width, _ = pixels.shape
        columns = max(1, min(cells.text.shape[1], WIDEST, 2 * room * width // height))
        rows = max(1, min(room, round(columns * height / width / 2)))
        if any(label.size * 2 * rows >= READABLE * height for label in labels) and isinstance(picture, Canvas):
            pixels, labels = picture.pixels, []
        packed = self._packed(averaged(pixels, 2 * rows, columns))
        upper, lower = packed[0::2], packed[1::2]
        at = slice(rows), slice(columns)
        cells.background[at] = lower
        cells.text[at] = np.where(upper == lower, PLAIN, upper)  # a space needs no text color
        cells.character[at] = np.where(upper == lower, SPACE, BLOCK)
        for label in labels:
            self._put_label(cells, label, columns / width, rows / height, (rows, columns))
        return rows

    def _put_label(self, cells: _Cells, label: Label, across: float, down: float, size: tuple[int, int]) -> None:
        """Write a label over an image of this size in terminal characters, as far as it fits."""
        color, (rows, columns) = int(self._packed(np.array(label.color))), size
        for row, text in enumerate(label.text.split("\n"), int(label.y * down)):
            start = round(label.x * across - label.share * len(text))
            for column, character in enumerate(text, start):
                if 0 <= row < rows and 0 <= column < columns and _is_narrow(character):
                    cells.character[row, column], cells.text[row, column] = ord(character), color

    def _packed(self, colors: NDArray[Any]) -> NDArray[np.int32]:
        """Encode colors (..., 3) as one number each: packed bytes, or an index into the 256-color palette."""
        colors = colors.astype(np.int32)
        return colors @ np.array([65536, 256, 1], np.int32) if self._truecolor else _of_256(colors)

    def _difference(self, cells: _Cells) -> str:
        """Return the text to write so that the terminal shows these cells."""
        before = self._shown
        if before is None or before.text.shape != cells.text.shape:  # the first frame, or a changed size
            before = _blank(cells.text.shape)
            written = ["\x1b[0m\x1b[2J"]
        else:
            written = []
        differs = np.logical_or.reduce([one != other for one, other in zip(cells, before, strict=True)])
        space = (cells.character == SPACE) & (cells.background == PLAIN)  # shorter than moving the cursor across it
        differs[:, 1:-1] |= differs[:, :-2] & space[:, 1:-1] & differs[:, 2:]
        changed = np.flatnonzero(differs)
        columns, following, text, background = cells.text.shape[1], -1, PLAIN, PLAIN
        for place, *cell in zip(
            *map(np.ndarray.tolist, (changed, *(one.ravel()[changed] for one in cells))), strict=True
        ):
            if place != following or place % columns == 0:
                written.append(f"\x1b[{place // columns + 1};{place % columns + 1}H")
            following = place + 1
            style = []
            if cell[1] != text and cell[0] != SPACE:
                text = cell[1]
                style.append(self._color(38, text))
            if cell[2] != background:
                style += ["27"] * (background == INVERTED)
                background = cell[2]
                style.append("7" if background == INVERTED else self._color(48, background))
            if style:
                written.append(f"\x1b[{';'.join(style)}m")
            written.append(chr(cell[0]))
        return "".join([*written, "\x1b[0m"]) if written else ""

    def _color(self, ground: int, color: int) -> str:
        """Return the code of a color; `ground` is 38 for text and 48 for the background."""
        if color == PLAIN:
            return str(ground + 1)
        if not self._truecolor:
            return f"{ground};5;{color}"
        return f"{ground};2;{color >> 16};{color >> 8 & 255};{color & 255}"


def _blank(size: tuple[int, ...]) -> _Cells:
    return _Cells(*(np.full(size, value, np.int32) for value in (SPACE, PLAIN, PLAIN)))


def _put_text(cells: _Cells, text: str, room: int) -> int:
    """Fill cells with lines of characters; cells with a background are inverted. Returns the number of lines."""
    lines, background = text.split("\n")[:room], PLAIN
    for row, line in enumerate(lines):
        column = place = 0
        for found in STYLED.finditer(line):
            column += _put_line(cells, row, line[place : found.start()], column, background)
            for code in map(int, re.findall(r"\d+", found[1] or "0")):
                if code == 7 or 40 <= code <= 48 or 100 <= code <= 107:
                    background = INVERTED
                elif code in (0, 27, 49):
                    background = PLAIN
            place = found.end()
        _put_line(cells, row, line[place:], column, background)
    return len(lines)


def _put_line(cells: _Cells, row: int, text: str, start: int = 0, background: int = PLAIN) -> int:
    """Fill the cells of a row from a column on, as far as the text fits; returns the number of characters."""
    fits = [one if _is_narrow(one) else "?" for one in text[: max(0, cells.text.shape[1] - start)]]
    at = row, slice(start, start + len(fits))
    cells.character[at] = list(map(ord, fits))
    cells.background[at] = background
    return len(text)


def _is_narrow(character: str) -> bool:
    """Return whether a terminal shows a character in one cell."""
    return character.isprintable() and east_asian_width(character) not in "WF"


def _of_256(colors: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the palette index of the nearest of 256 colors, from the cube or the grays; colors are (..., 3)."""
    steps = np.abs(colors[..., None] - LEVELS).argmin(-1)
    gray = np.clip((colors.mean(-1) - 3) // 10, 0, 23).astype(np.int32)
    off_cube = ((LEVELS[steps] - colors) ** 2).sum(-1)
    off_gray = ((8 + 10 * gray[..., None] - colors) ** 2).sum(-1)
    return np.where(off_gray < off_cube, 232 + gray, 16 + steps @ np.array([36, 6, 1])).astype(np.int32)
