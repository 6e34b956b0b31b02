"""From an observation to the input row of a network: flat single-precision numbers, or one-hot codes.

An observation of a Dict or Tuple is read as its raw row (see `observations`); its input row has the parts one after the
other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from velocirl.networks.observations import WHOLE_LIMIT, Leaf, is_structured, leaves_of

LIMIT = 10.0  # normalised numbers further out than this say no more than "far out"


class Part(NamedTuple):
    """Neighbouring inputs that belong together: a leaf of a Dict or Tuple, or all of another space."""

    name: str  # "camera", "arm/left", "0"; "" of a space that is not structured
    start: int
    size: int
    shape: tuple[int, ...]  # in which a network sees it


FIELD = np.dtype(
    [
        *((name, np.int64) for name in ("raw", "start", "width", "code", "first", "normalised")),
        ("offset", np.float32),
        ("factor", np.float32),
    ],
    align=True,
)


def encode(raw, table, centre, inverse_scale, into):
    """Write the input row of a raw observation; gives 0, or NaN where something in it is not finite."""
    check = np.float32(0)
    for f in range(len(table)):
        field = table[f]
        if field.code:
            seen = raw[field.raw]
            for k in range(field.width):
                into[field.start + k] = 1.0 if seen == field.first + k else 0.0
        else:
            for k in range(field.width):
                number = np.float32(raw[field.raw + k])
                check += number * 0  # here, since an infinite number would not be seen once it is held within limits
                j = field.start + k
                if field.normalised:
                    number = (number - centre[j]) * inverse_scale[j]
                    number = LIMIT if number > LIMIT else (-LIMIT if number < -LIMIT else number)
                else:
                    number = (number - field.offset) * field.factor
                into[j] = number
    return check


def encode_rows(
    raw: NDArray[Any], table: NDArray[Any], centre: NDArray[Any], inverse_scale: NDArray[Any], into: NDArray[np.float32]
) -> None:
    """The same for many raw observations (rows, numbers) at once, number for number."""
    for field in table:
        start, width = int(field["start"]), int(field["width"])
        inputs = slice(start, start + width)
        if field["code"]:
            into[:, inputs] = raw[:, field["raw"], None] == field["first"] + np.arange(width)
        elif field["normalised"]:
            numbers = raw[:, field["raw"] : field["raw"] + width].astype(np.float32)
            into[:, inputs] = np.clip((numbers - centre[inputs]) * inverse_scale[inputs], -LIMIT, LIMIT)
        else:
            numbers = raw[:, field["raw"] : field["raw"] + width].astype(np.float32)
            into[:, inputs] = numbers * field["factor"]


class Encoding(NamedTuple):
    """How one observation becomes one input row."""

    inputs: int  # the width of the row
    normalises: bool  # whether `encode` uses centre and inverse_scale
    parts: tuple[Part, ...]  # of the row, from left to right
    table: NDArray[Any]  # (fields,) FIELD, what `encode` goes through


def encoding_for(space: Space[Any], normalise: bool, *, scale: bool = False) -> Encoding:
    """The encoding of an observation space. Only numbers are normalised or scaled; codes are not numbers.

    Normalised is by what was seen so far, scaled by the bounds of the space, where it has some: to -1 at the lowest and
    1 at the highest.
    """
    rows: list[tuple[Any, ...]] = []
    parts: list[Part] = []
    start = 0
    for leaf in leaves_of(space):
        first_input, codes = start, _codes(leaf.space)
        for place, (count, first) in enumerate(codes):
            if is_structured(space) and max(abs(first), abs(first + count - 1)) > WHOLE_LIMIT:
                raise ValueError(
                    f"{leaf.name!r} is {leaf.space}: single precision does not hold its numbers exactly; give numbers"
                    f" of at most {WHOLE_LIMIT}"
                )
            rows.append((leaf.start + place, start, count, 1, first, 0, 0.0, 0.0))
            start += count
        if not codes:
            rows += _numbers(leaf, start, normalise, scale)
            start += leaf.size
        size = start - first_input
        parts.append(Part(leaf.name, first_input, size, (size,) if codes else leaf.shape))
    table = np.array(rows, FIELD)
    return Encoding(start, bool(table["normalised"].any()), tuple(parts), table)


def _numbers(leaf: Leaf, start: int, normalise: bool, scale: bool) -> list[tuple[Any, ...]]:
    """The rows of numbers: one, or one for each where each has a scale of its own."""
    space = leaf.space
    if len(leaf.shape) > 4:
        raise ValueError(f"no network reads observations of {len(leaf.shape)} dimensions; flatten them to at most four")
    if isinstance(space, Box) and normalise:
        return [(leaf.start, start, leaf.size, 0, 0, 1, 0.0, 1.0)]
    if not (isinstance(space, Box) and scale and np.issubdtype(space.dtype, np.floating)):
        return [(leaf.start, start, leaf.size, 0, 0, 0, 0.0, _factor(space))]
    low, high = space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high) & (low < high)
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    offset, factor = (low + high) / 2.0, 2.0 / (high - low)
    return [(leaf.start + k, start + k, 1, 0, 0, 0, offset[k], factor[k]) for k in range(leaf.size)]


def _codes(space: Space[Any]) -> list[tuple[int, int]]:
    """The options and the first one of each choice that becomes a one-hot code."""
    if isinstance(space, Discrete):
        return [(int(space.n), int(space.start))]
    if isinstance(space, MultiDiscrete):
        if space.nvec.ndim != 1:
            raise ValueError(f"no network reads observations of {space}: flatten its choices to one dimension")
        starts = np.broadcast_to(space.start, space.nvec.shape)
        return [(int(count), int(start)) for count, start in zip(space.nvec, starts, strict=True)]
    return []


def _factor(space: Space[Any]) -> float:
    """By what numbers are multiplied: those of pictures are at most 1 then."""
    return 1 / max(int(space.high.max()), 1) if isinstance(space, Box) and space.dtype == np.uint8 else 1.0
