"""Encoding of observations as network inputs: flat single-precision numbers, or one-hot codes.

An observation of a Dict or Tuple is read as its raw row (see `observations`); its input row has the encoded parts in
order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from velocirl.networks.observations import WHOLE_LIMIT, Leaf, is_structured, leaves_of

LIMIT = 10.0  # clip normalized values: further out they carry no more information
HUGE = 1e12  # larger bounds, such as 3.4e38, only mean that a number is finite: they are no scale


class Part(NamedTuple):
    """Adjacent inputs that belong together: a leaf of a Dict or Tuple, or all of another space."""

    name: str  # "camera", "arm/left", "0"; "" for an unstructured space
    start: int
    size: int
    shape: tuple[int, ...]  # shape in which a network reads it


FIELD = np.dtype(
    [
        *((name, np.int64) for name in ("raw", "start", "width", "code", "first", "normalised")),
        ("offset", np.float32),
        ("factor", np.float32),
    ],
    align=True,
)


def encode(raw, table, centre, inverse_scale, into):
    """Write the input row of a raw observation. Returns 0, or NaN if any number is not finite."""
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


class Affine(NamedTuple):
    """Affine form of each input: (number - centre) * scale, clipped to +-limit; codes have no entry."""

    centre: NDArray[np.float32]  # (inputs,)
    scale: NDArray[np.float32]  # (inputs,)
    limit: NDArray[np.float32]  # (inputs,) infinity for no clipping


class Encoding(NamedTuple):
    """Encoding of one observation as one input row.

    `encode` computes one row on every device, `encode_rows` an array of rows with equal results. Exports, and the first
    layers of an agent that continues another, are derived from `affine`.
    """

    inputs: int  # the width of the row
    normalises: bool  # whether `encode` uses centre and inverse_scale
    parts: tuple[Part, ...]  # of the row, from left to right
    table: NDArray[Any]  # (fields,) FIELD, processed by `encode`

    def affine(self, centre: Any = 0.0, inverse_scale: Any = 1.0) -> Affine:
        """Return the affine form of each input; `centre` and `inverse_scale` (inputs,) come from the normalizer."""
        found = Affine(*(np.full(self.inputs, value, np.float32) for value in (0.0, 1.0, np.inf)))
        centre, inverse_scale = (np.broadcast_to(one, (self.inputs,)) for one in (centre, inverse_scale))
        for field in self.table[self.table["code"] == 0]:
            at = slice(int(field["start"]), int(field["start"] + field["width"]))
            if field["normalised"]:
                found.centre[at], found.scale[at], found.limit[at] = centre[at], inverse_scale[at], LIMIT
            else:
                found.centre[at], found.scale[at] = field["offset"], field["factor"]
        return found

    def encode_rows(self, raw: NDArray[Any], affine: Affine, into: NDArray[np.float32]) -> None:
        """Write the input rows (rows, inputs) of raw observations (rows, numbers)."""
        for field in self.table:
            start, width = int(field["start"]), int(field["width"])
            at = slice(start, start + width)
            if field["code"]:
                into[:, at] = raw[:, field["raw"], None] == field["first"] + np.arange(width)
                continue
            numbers = raw[:, field["raw"] : field["raw"] + width].astype(np.float32)
            numbers = (numbers - affine.centre[at]) * affine.scale[at]
            into[:, at] = np.clip(numbers, -affine.limit[at], affine.limit[at]) if field["normalised"] else numbers

    @property
    def pixel_factor(self) -> np.float32:
        """Scale factor of image bytes, their whole encoding: frames are stored as bytes."""
        (field,) = self.table
        assert not field["code"] and not field["normalised"]  # noqa: S101, PT018 - only raw bytes are stored so
        return np.float32(field["factor"])


def encoding_for(space: Space[Any], normalise: bool, *, scale: bool = False) -> Encoding:
    """Return the encoding of an observation space. Only numbers are normalized or scaled, codes are not.

    Normalization uses the running statistics of observations. Scaling uses the bounds of the space if they are a scale:
    -1 at the lowest and 1 at the highest.
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
    """Return the table rows of numbers: one row, or one for each number if each has its own scale."""
    space = leaf.space
    if len(leaf.shape) > 4:
        raise ValueError(f"no network reads observations of {len(leaf.shape)} dimensions; flatten them to at most four")
    if isinstance(space, Box) and normalise:
        return [(leaf.start, start, leaf.size, 0, 0, 1, 0.0, 1.0)]
    if not (isinstance(space, Box) and scale and np.issubdtype(space.dtype, np.floating)):
        return [(leaf.start, start, leaf.size, 0, 0, 0, 0.0, _factor(space))]
    low, high = space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64)
    bounded = are_scale(low, high) & (low < high)
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    offset, factor = (low + high) / 2.0, 2.0 / (high - low)
    return [(leaf.start + k, start + k, 1, 0, 0, 0, offset[k], factor[k]) for k in range(leaf.size)]


def are_scale(low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which bounds give a scale: both are finite, and neither is huge."""
    return (np.abs(low) < HUGE) & (np.abs(high) < HUGE)


def _codes(space: Space[Any]) -> list[tuple[int, int]]:
    """Return the number of options and the first option of each choice that becomes a one-hot code."""
    if isinstance(space, Discrete):
        return [(int(space.n), int(space.start))]
    if isinstance(space, MultiDiscrete):
        if space.nvec.ndim != 1:
            raise ValueError(f"no network reads observations of {space}: flatten its choices to one dimension")
        starts = np.broadcast_to(space.start, space.nvec.shape)
        return [(int(count), int(start)) for count, start in zip(space.nvec, starts, strict=True)]
    return []


def _factor(space: Space[Any]) -> float:
    """Return the scale factor of numbers; it makes image values at most 1."""
    return 1 / max(int(space.high.max()), 1) if isinstance(space, Box) and space.dtype == np.uint8 else 1.0
