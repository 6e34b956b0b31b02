"""From an observation to the input row of a network: flat single-precision numbers, or one-hot codes.

An observation of a Dict or Tuple is read as its raw row (see `observations`); its input row has the parts one after the
other.
"""

from __future__ import annotations

from collections.abc import Callable
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
                    number *= field.factor
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
    # (observation, centre, inverse_scale, encoded) -> 0, or NaN where something in the observation is not finite
    encode: Callable[..., Any]
    normalises: bool  # whether centre and inverse_scale are used
    at: Callable[..., Any]  # (observation, j) -> the number that becomes input j, where it normalises
    parts: tuple[Part, ...]  # of the row, from left to right
    table: Any = None  # (fields,) FIELD: the same for `encode`


def encoding_for(space: Space[Any], normalise: bool) -> Encoding:
    """The encoding of an observation space. Only numbers are normalised; codes are not numbers."""
    found = _encoding_for(space, normalise)
    return found._replace(table=_table(space, normalise))


def _table(space: Space[Any], normalise: bool) -> Any:
    rows: list[tuple[Any, ...]] = []
    start = 0
    leaves = leaves_of(space)
    for leaf in leaves:
        codes = _codes(leaf.space)
        for place, (count, first) in enumerate(codes):
            rows.append((leaf.start + place, start, count, 1, first, 0, 0.0))
            start += count
        if not codes:
            normalises = normalise and isinstance(leaf.space, Box)
            rows.append((leaf.start, start, leaf.size, 0, 0, int(normalises), _factor(leaf.space)))
            start += leaf.size
    return np.array(rows, FIELD)


def _encoding_for(space: Space[Any], normalise: bool) -> Encoding:
    if is_structured(space):
        return _structured(leaves_of(space), normalise)
    codes = _codes(space)
    if codes:
        return _one_hot(*zip(*codes, strict=True))
    leaf = leaves_of(space)[0]
    at = number_at(leaf.shape)
    normalises = normalise and isinstance(space, Box)
    encode = _normalised(leaf.size, at) if normalises else _numbers(leaf.size, _factor(space), at)
    return Encoding(leaf.size, encode, normalises, at, (Part("", 0, leaf.size, leaf.shape),))


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


def number_at(shape: tuple[int, ...]) -> Callable[..., Any]:
    """`at(observation, j)`: number j of an observation, counted row by row."""
    if len(shape) == 1:
        return _in_a_row
    if len(shape) == 2:
        return _in_a_table(shape[1])
    if len(shape) == 3:
        return _in_a_stack(shape[1], shape[2])
    if len(shape) == 4:
        return _in_frames(*shape[1:])
    raise ValueError(f"no network reads observations of {len(shape)} dimensions; flatten them to at most four")


def _in_a_row(observation, j):
    return observation[j]


def _in_a_table(columns: int) -> Callable[..., Any]:
    def at(observation, j):
        return observation[j // columns, j % columns]

    return at


def _in_a_stack(rows: int, columns: int) -> Callable[..., Any]:
    def at(observation, j):
        return observation[j // (rows * columns), j // columns % rows, j % columns]

    return at


def _in_frames(rows: int, columns: int, channels: int) -> Callable[..., Any]:
    in_frame = _in_a_stack(columns, channels)

    def at(observation, j):
        size = rows * columns * channels
        return in_frame(observation[j // size], j % size)

    return at


def _numbers(size: int, factor: float, at: Callable[..., Any]) -> Callable[..., Any]:
    def encode(observation, centre, inverse_scale, encoded):  # noqa: ARG001 - every encoding has the same signature
        check = np.float32(0)
        for j in range(size):
            number = np.float32(at(observation, j))
            check += number * 0
            encoded[j] = number * factor
        return check

    return encode


def _normalised(size: int, at: Callable[..., Any]) -> Callable[..., Any]:
    def encode(observation, centre, inverse_scale, encoded):
        check = np.float32(0)
        for j in range(size):
            number = np.float32(at(observation, j))
            check += number * 0  # here, since an infinite number would not be seen once it is held within the limits
            number = (number - centre[j]) * inverse_scale[j]
            encoded[j] = LIMIT if number > LIMIT else (-LIMIT if number < -LIMIT else number)
        return check

    return encode


def _one_hot(counts: tuple[int, ...], starts: tuple[int, ...]) -> Encoding:
    def encode(observation, centre, inverse_scale, encoded):  # noqa: ARG001
        first = 0
        for part in range(len(counts)):
            for k in range(counts[part]):
                encoded[first + k] = 1.0 if observation[part] == starts[part] + k else 0.0
            first += counts[part]
        return np.float32(0)

    size = sum(counts)
    return Encoding(size, encode, False, _in_a_row, (Part("", 0, size, (size,)),))


class _Field(NamedTuple):
    """Neighbouring inputs that are made in one way: numbers, or the code of one number."""

    raw: int  # where it begins in the raw row
    start: int  # where it begins in the input row
    size: int  # of its inputs
    kind: int
    factor: float  # of numbers
    first: int  # of a code: the number whose code has its first place


_NUMBERS, _NORMALISED, _CODE = range(3)


def _structured(leaves: list[Leaf], normalise: bool) -> Encoding:
    fields: list[_Field] = []
    parts: list[Part] = []
    start = 0
    for leaf in leaves:
        codes = _codes(leaf.space)
        for place, (count, first) in enumerate(codes):
            if max(abs(first), abs(first + count - 1)) > WHOLE_LIMIT:
                raise ValueError(
                    f"{leaf.name!r} is {leaf.space}: single precision does not hold its numbers exactly; give numbers"
                    f" of at most {WHOLE_LIMIT}"
                )
            fields.append(_Field(leaf.start + place, start, count, _CODE, 0.0, first))
            start += count
        if not codes:
            kind = _NORMALISED if normalise and isinstance(leaf.space, Box) else _NUMBERS
            fields.append(_Field(leaf.start, start, leaf.size, kind, _factor(leaf.space), 0))
            start += leaf.size
        before = parts[-1].start + parts[-1].size if parts else 0
        size = start - before
        parts.append(Part(leaf.name, before, size, (size,) if codes else leaf.shape))
    normalised = [field for field in fields if field.kind == _NORMALISED]
    return Encoding(start, _by_fields(fields), bool(normalised), _number_of(normalised), tuple(parts))


def _by_fields(fields: list[_Field]) -> Callable[..., Any]:
    raws, starts, sizes, kinds, factors, firsts = zip(*fields, strict=True)

    def encode(observation, centre, inverse_scale, encoded):
        check = np.float32(0)
        for field in range(len(kinds)):
            raw, start, size = raws[field], starts[field], sizes[field]
            if kinds[field] == _CODE:
                for k in range(size):
                    encoded[start + k] = 1.0 if observation[raw] == firsts[field] + k else 0.0
            elif kinds[field] == _NORMALISED:
                for k in range(size):
                    number = observation[raw + k]
                    check += number * 0
                    number = (number - centre[start + k]) * inverse_scale[start + k]
                    encoded[start + k] = LIMIT if number > LIMIT else (-LIMIT if number < -LIMIT else number)
            else:
                for k in range(size):
                    number = observation[raw + k]
                    check += number * 0
                    encoded[start + k] = number * factors[field]
        return check

    return encode


def _number_of(fields: list[_Field]) -> Callable[..., Any]:
    """`at(observation, j)` of a raw row: the number that becomes input j; 0 for inputs that are not normalised."""
    if not fields:
        return _in_a_row
    raws, starts, sizes, *_ = zip(*fields, strict=True)

    def at(observation, j):
        number = np.float32(0)
        for field in range(len(starts)):
            k = j - starts[field]
            if k >= 0 and k < sizes[field]:
                number = observation[raws[field] + k]
        return number

    return at
