"""Experience records: one row per step and environment, in a rollout, in a replay buffer, or sampled from one.

A record spans one or two cache lines, so that reading one at random costs one or two memory accesses. Observations,
which only networks read, are stored after all other fields. Functions see only the fields before them (`narrow`), so
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

# Values of `ended`. LOST: the last frame of the truncated episode is no longer stored.
GOES_ON, TERMINATED, TRUNCATED, LOST = 0, 1, 2, 3
LINE = 64  # bytes of a cache line
WIDE = ("observation", "next_observation")  # flat, encoded and, if configured, normalized


class Field(NamedTuple):
    """Field of a record."""

    name: str
    dtype: Any
    shape: tuple[int, ...] = ()


# Fields of steps with stored frames: the number of frames in the stack before the newest, and the index of a truncated
# episode's last frame among the final frames of its environment, else -1.
AGE, FINAL = Field("age", np.int32), Field("final", np.int32)


class Frames(NamedTuple):
    """Frame stack of uint8 observations, stored frame by frame; see `buffers.frames`."""

    stack: int  # frames of an observation, the oldest first
    size: int  # bytes of one


class Act(NamedTuple):
    """Layout of an action."""

    size: int  # entries of a row
    dtype: str
    choices: int  # the width of its mask, 0 without one


def rollout_type(
    inputs: int, act: Act, own: Sequence[Field], values: Sequence[str], frames: Frames | None = None
) -> np.dtype[Any]:
    """Return the record type of a rollout step, with an algorithm's own fields; frames are stored elsewhere.

    Each of the `values` has a second field, for the last observation of a truncated episode, else 0.
    """
    first = [one for name in values for one in own if one.name == name]  # so that they are contiguous
    finals = [Field(f"final_{one.name}", np.float32, one.shape) for one in first]
    rest = [one for one in own if one.name not in values]
    fields = [Field("reward", np.float32), *first, *finals, *rest, *_chosen(act, "mask"), Field("ended", np.int8)]
    if frames is not None:
        return _in_lines(_record([*fields, AGE]))
    return _in_lines(_record([*fields, Field("observation", np.float32, (inputs,))]))


def transition_type(inputs: int, act: Act, own: Sequence[Field] = (), frames: Frames | None = None) -> np.dtype[Any]:
    """Return the record type of a step in a replay buffer; with frames, it holds only the newest one.

    A mask of zeros forbids nothing.
    """
    fields = [Field("reward", np.float32), *own, *_chosen(act, "mask", "next_mask"), Field("ended", np.int8)]
    if frames is not None:
        return _record([*fields, AGE, FINAL, Field("observation", np.uint8, (frames.size,))])
    return _record([*fields, *(Field(name, np.float32, (inputs,)) for name in WIDE)])


def drawn_type(act: Act, own: Sequence[Field]) -> np.dtype[Any]:
    """Return the record type of a sampled transition, as it passes through the stages of an update.

    `reward` is the sum over n steps, `discount` the factor of the value after them, and `weight` the weight in the
    loss. The update writes `error`.
    """
    numbers = [Field(name, np.float32) for name in ("reward", "discount", "weight", "error")]
    return _record([*numbers, *own, *_chosen(act, "mask", "next_mask")])


def side_by_side(records: Any, names: Sequence[str]) -> Any:
    """View contiguous float32 fields of records (...) as (..., numbers), in the same memory."""
    if isinstance(records, np.ndarray):
        first = records[names[0]]
        first = first if first.ndim == records.ndim else first[..., 0]
        return np.lib.stride_tricks.as_strided(first, (*first.shape, width(records.dtype, names)), (*first.strides, 4))
    return records.side_by_side(names)


def width(dtype: np.dtype[Any], names: Sequence[str]) -> int:
    """Return the number of values that fields have together."""
    return sum(prod(dtype[name].shape) for name in names)


def narrow(records: Any) -> Any:
    """View the records without their observations, in the same memory."""
    if isinstance(records, np.ndarray):
        kind = narrow_type(records.dtype)
        return np.ndarray(records.shape, kind, records, strides=records.strides)  # pyright: ignore[reportCallIssue]
    return records.as_type(narrow_type(records.dtype))


def narrow_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of a record without its observations."""
    kept = [(name, field[0].base, field[0].shape) for name, field in (dtype.fields or {}).items() if name not in WIDE]
    return np.dtype(kept, align=True)


def aligned_records(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate records of zeros that begin at a cache line."""
    size = prod(shape) * dtype.itemsize
    claim(size, f"a rollout of {prod(shape):,} steps (num_envs, horizon)")
    memory = np.zeros(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def without_gaps(rows: NDArray[Any]) -> NDArray[Any]:
    """Copy rows with zeros between the fields, where numpy's copy leaves arbitrary bytes."""
    clean = np.zeros(rows.shape, rows.dtype)
    for name in rows.dtype.names or ():
        clean[name] = rows[name]
    return clean if rows.dtype.names else np.ascontiguousarray(rows)


def _in_lines(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Pad a record type so that no record spans more cache lines than it needs."""
    whole = LINE // 2 if dtype.itemsize <= LINE // 2 else -(-dtype.itemsize // LINE) * LINE
    fields = dtype.fields or {}
    names, formats, offsets = list(fields), [one[0] for one in fields.values()], [one[1] for one in fields.values()]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": whole}, align=True)


def _chosen(act: Act, *masks: str) -> list[Field]:
    """Return the fields of the sampled action, before any clipping, and of its masks."""
    return [Field("action", act.dtype, (act.size,)), *(Field(mask, np.int8, (max(act.choices, 1),)) for mask in masks)]


def _record(fields: Sequence[Field]) -> np.dtype[Any]:
    names = [one.name for one in fields]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"a row has a field {name!r} of its own: declare this one under another name")
    return np.dtype([(one.name, one.dtype, one.shape) for one in fields], align=True)
