"""Text on a canvas: letters of 5 x 7 dots, scaled to any size, anti-aliased by pixel coverage."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DOTS, ADVANCE = 7, 6  # dots of a capital letter's height, and from one letter to the next
BELOW = 2  # rows of dots below the baseline, for g, j, p, q and y
LINE = 11  # dots from one line to the next
BOX = "1F11111111111F"  # stands for a character without a glyph
# Rows of dots from the top, two hexadecimal digits each; the highest of five bits is the dot on the left.
GLYPHS: dict[str, str] = {
    pair[0]: pair[2:]
    for pair in """\
A 0E11111F111111|B 1E11111E11111E|C 0E11101010110E|D 1E11111111111E|E 1F10101E10101F|F 1F10101E101010|G 0E11101711110F
H 1111111F111111|I 0E04040404040E|J 0702020202120C|K 11121418141211|L 1010101010101F|M 111B1515111111|N 11111915131111
O 0E11111111110E|P 1E11111E101010|Q 0E11111115120D|R 1E11111E141211|S 0F10100E01011E|T 1F040404040404|U 1111111111110E
V 11111111110A04|W 11111115151B11|X 11110A040A1111|Y 11110A04040404|Z 1F01020408101F
a 00000E010F110F|b 1010161911111E|c 00000E1010110E|d 01010D1311110F|e 00000E111F100E|f 0609081C080808
g 00000F1111110F010E|h 10101619111111|i 04000C0404040E|j 02000602020202120C|k 10101214181412|l 0C04040404040E
m 00001A15151111|n 00001619111111|o 00000E1111110E|p 00001E1111111E1010|q 00000F1111110F0101|r 00001619101010
s 00000E100E011E|t 08081C08080906|u 0000111111130D|v 00001111110A04|w 0000111115150A|x 0000110A040A11
y 0000111111110F010E|z 00001F0204081F
0 0E11131519110E|1 040C040404040E|2 0E11010204081F|3 1F02040201110E|4 02060A121F0202|5 1F101E0101110E|6 0608101E11110E
7 1F010204080808|8 0E11110E11110E|9 0E11110F01020C
! 04040404040004|" 0A0A0A00000000|# 0A0A1F0A1F0A0A|$ 040F140E051E04|% 18190204081303|& 0C12140815120D|' 04040400000000
( 02040808080402|) 08040202020408|* 0004150E150400|+ 0004041F040400|, 000000000006020204|- 0000001F000000
. 00000000000C0C|/ 00010204081000|: 000C0C000C0C00|; 00060600000602|< 02040810080402|= 00001F001F0000|> 08040201020408
? 0E110102040004|@ 0E11171517100E|[ 0E08080808080E|\\ 00100804020100|] 0E02020202020E|^ 040A1100000000|_ 0000000000001F
` 08040200000000|{ 02040408040402|¦ 04040400040404|} 08040402040408|~ 00000815020000
° 0C12120C000000|² 0C12040810001E|· 00000004000000|÷ 0004001F000400|± 04041F0404001F|µ 00001111111D1010
← 0004081F080400|→ 0004021F020400|↑ 00040E15040400|↓ 000404150E0400|≤ 02040804021F00|≥ 08040204081F00\
""".replace("\n", "|").split("|")
}
GLYPHS |= {" ": "", "|": "04040404040404"}


SHARES = {"left": 0.0, "center": 0.5, "right": 1.0}


class Label(NamedTuple):
    """Text on a canvas, in pixels."""

    x: float  # of its left end, middle or right end, depending on `align`
    y: float  # of the middle of its capital letters
    text: str
    size: float  # height of a capital letter
    color: tuple[int, int, int]
    align: str

    @property
    def share(self) -> float:
        """Fraction of a line that is left of x."""
        return SHARES[self.align]


def write(pixels: NDArray[np.uint8], label: Label) -> None:
    """Write a label into an image (height, width, 3)."""
    height, width, _ = pixels.shape
    dot = label.size / DOTS
    for row, text in enumerate(label.text.split("\n")):
        left = label.x - label.share * dot * (ADVANCE * len(text) - 1)
        top = label.y + dot * (row * LINE - DOTS / 2)
        dots = np.concatenate([_dots(one) for one in text] or [_dots(" ")], axis=1)
        columns, stripes = _covered(dots, left, dot, width)
        rows, share = _covered(stripes.T, top, dot, height)
        under = pixels[rows, columns]
        pixels[rows, columns] = np.rint(under + (np.array(label.color, np.float64) - under) * share.T[:, :, None])


@lru_cache(maxsize=256)
def _dots(character: str) -> NDArray[np.float64]:
    """Return the dots of a character (DOTS + BELOW, ADVANCE), 1 where there is one."""
    code = GLYPHS.get(character, BOX)
    rows = [int(code[place : place + 2], 16) for place in range(0, len(code), 2)]
    found = np.zeros((DOTS + BELOW, ADVANCE))
    for y, row in enumerate(rows):
        found[y, :5] = [row >> bit & 1 for bit in range(4, -1, -1)]
    return found


def _covered(dots: NDArray[Any], start: float, dot: float, size: int) -> tuple[slice, NDArray[np.float64]]:
    """Return the pixels that columns of dots reach, and the covered share (rows, pixels) of each: area sampling."""
    count = dots.shape[1]
    first, last = (int(np.clip(edge, 0, size)) for edge in (np.floor(start), np.ceil(start + count * dot)))
    edges = np.clip((np.arange(first, last + 1) - start) / dot, 0, count)  # of pixels, in dots
    whole = np.minimum(edges.astype(int), count - 1)
    before = np.cumsum(dots, axis=1) - dots
    covered = before[:, whole] + dots[:, whole] * (edges - whole)  # left of each edge
    return slice(first, last), np.asarray(np.diff(covered, axis=1) * dot, np.float64)
