"""The records of experience: one row for each step of each copy, in a rollout, in a memory, or drawn from one.

A record is one or two lines of the cache, so that one drawn at random costs one or two accesses to memory.
Observations, which only networks read, lie behind all other fields: functions see the fields before them (`narrow`), so
that they are compiled once for observations of any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.allowance import claim
from velocirl.engine.errors import DefinitionError

# What `ended` says of a step; of one that is lost, the frame with which its episode was cut off is no longer there.
GOES_ON, TERMINATED, TRUNCATED, LOST = 0, 1, 2, 3
LINE = 64  # bytes of a line of the cache
WIDE = ("observation", "next_observation")  # flat, encoded and, where that is asked for, normalised


class Field(NamedTuple):
    """One field of a record."""

    name: str
    dtype: Any
    shape: tuple[int, ...] = ()


# Of steps whose frames are stored: how many frames of its stack lie before the newest, and where the last frame lies of
# an episode that was cut off, counted among those of the copy, else -1.
AGE, FINAL = Field("age", np.int32), Field("final", np.int32)


class Frames(NamedTuple):
    """What observations are made of that are stored as bytes, frame by frame; see `buffers.frames`."""

    stack: int  # frames of an observation, the oldest first
    size: int  # bytes of one


class Act(NamedTuple):
    """What an action is made of."""

    size: int  # entries of a row
    dtype: str
    choices: int  # the width of its mask, 0 where there is none


def rollout_type(
    inputs: int, act: Act, own: Sequence[Field], values: Sequence[str], frames: Frames | None = None
) -> np.dtype[Any]:
    """The record of one step in a rollout, with an algorithm's own fields; frames lie elsewhere.

    Of each of the `values` there is also that of the last observation of an episode that was cut off, else 0.
    """
    first = [one for name in values for one in own if one.name == name]  # so that they lie side by side
    finals = [Field(f"final_{one.name}", np.float32, one.shape) for one in first]
    rest = [one for one in own if one.name not in values]
    fields = [Field("reward", np.float32), *first, *finals, *rest, *_chosen(act, "mask"), Field("ended", np.int8)]
    if frames is not None:
        return _in_lines(_record([*fields, AGE]))
    return _in_lines(_record([*fields, Field("observation", np.float32, (inputs,))]))


def transition_type(inputs: int, act: Act, own: Sequence[Field] = (), frames: Frames | None = None) -> np.dtype[Any]:
    """The record of one step in a memory; zeros of a mask forbid nothing. Of frames, it has the newest one."""
    fields = [Field("reward", np.float32), *own, *_chosen(act, "mask", "next_mask"), Field("ended", np.int8)]
    if frames is not None:
        return _record([*fields, AGE, FINAL, Field("observation", np.uint8, (frames.size,))])
    return _record([*fields, *(Field(name, np.float32, (inputs,)) for name in WIDE)])


def drawn_type(act: Act, own: Sequence[Field]) -> np.dtype[Any]:
    """The record of a transition that was drawn, as it goes through the stages of an update.

    Its reward is that of n steps, its discount that of what follows them, its weight that in the loss; its error is
    what the update found.
    """
    numbers = [Field(name, np.float32) for name in ("reward", "discount", "weight", "error")]
    return _record([*numbers, *own, *_chosen(act, "mask", "next_mask")])


def side_by_side(records: Any, names: Sequence[str]) -> Any:
    """Fields of float32 that lie side by side in records (...), as (..., numbers) of the same memory."""
    if isinstance(records, np.ndarray):
        first = records[names[0]]
        first = first if first.ndim == records.ndim else first[..., 0]
        return np.lib.stride_tricks.as_strided(first, (*first.shape, width(records.dtype, names)), (*first.strides, 4))
    return records.side_by_side(names)


def width(dtype: np.dtype[Any], names: Sequence[str]) -> int:
    """How many numbers fields have together."""
    return sum(prod(dtype[name].shape) for name in names)


def narrow(records: Any) -> Any:
    """The same records without their observations, in the same memory."""
    if isinstance(records, np.ndarray):
        kind = narrow_type(records.dtype)
        return np.ndarray(records.shape, kind, records, strides=records.strides)  # pyright: ignore[reportCallIssue]
    return records.as_type(narrow_type(records.dtype))


def narrow_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of a record without its observations."""
    kept = [(name, field[0].base, field[0].shape) for name, field in (dtype.fields or {}).items() if name not in WIDE]
    return np.dtype(kept, align=True)


def aligned_records(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Records of zeros that begin with a line of the cache."""
    size = prod(shape) * dtype.itemsize
    claim(size, f"a rollout of {prod(shape):,} steps (num_envs, horizon)")
    memory = np.zeros(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def without_gaps(rows: NDArray[Any]) -> NDArray[Any]:
    """A copy with zeros between the fields, where a copy by numpy has what happened to lie in memory."""
    clean = np.zeros(rows.shape, rows.dtype)
    for name in rows.dtype.names or ():
        clean[name] = rows[name]
    return clean if rows.dtype.names else np.ascontiguousarray(rows)


def _in_lines(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same record, with as much room behind it as keeps the next from lying in one line of the cache more."""
    whole = LINE // 2 if dtype.itemsize <= LINE // 2 else -(-dtype.itemsize // LINE) * LINE
    fields = dtype.fields or {}
    names, formats, offsets = list(fields), [one[0] for one in fields.values()], [one[1] for one in fields.values()]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": whole}, align=True)


def _chosen(act: Act, *masks: str) -> list[Field]:
    """The action as it was drawn, before any clipping, and what was legal."""
    return [Field("action", act.dtype, (act.size,)), *(Field(mask, np.int8, (max(act.choices, 1),)) for mask in masks)]


def _record(fields: Sequence[Field]) -> np.dtype[Any]:
    names = [one.name for one in fields]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"a row has a field {name!r} of its own: declare this one under another name")
    return np.dtype([(one.name, one.dtype, one.shape) for one in fields], align=True)
