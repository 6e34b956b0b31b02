"""Columns of a dataset: names, types and shapes, and validation of their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

from velocirl.buffers.data.info import DatasetInfo
from velocirl.engine.action_parts import Part, parts_of
from velocirl.engine.disk.safetensors_layout import NAMES

Array = NDArray[Any]
OBSERVATIONS, ACTIONS = "observations", "actions"
STRETCH = 2**18  # rows that are checked together: a dataset may be larger than memory


class DatasetError(ValueError):
    """Data that cannot be learned from as they are; the message names the fault and its position."""


class Column(NamedTuple):
    """Specification of a column: its type, the shape of one row, and the part of a space its values belong to."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    part: Part | None = None


def columns_of(info: DatasetInfo) -> dict[str, Column]:
    """Return the columns of data with these spaces and constraints, except the starts of episodes."""
    found: dict[str, Column] = {}
    for kind, space in ((OBSERVATIONS, info.observation_space), (ACTIONS, info.action_space)):
        for part in parts_of(space):
            dtype = np.dtype(part.space.dtype)
            if dtype not in NAMES:
                raise DatasetError(f"{kind} are values of {part.space}, which cannot be recorded")
            found[column_name(kind, part)] = Column(dtype, part.shape, part)
    single, flag = np.dtype(np.float32), np.dtype(np.bool_)
    rest = {"rewards": single, "costs": single, "terminations": flag, "truncations": flag}
    return found | {
        name: Column(dtype, (len(info.constraints),) if name == "costs" else ()) for name, dtype in rest.items()
    }


def column_name(kind: str, part: Part) -> str:
    """Return the column name of a part of observations or actions: "observations", "observations/camera"."""
    return f"{kind}/{part.name}" if part.path else kind


def is_observed(name: str) -> bool:
    """Return whether a column has one row more than an episode has steps."""
    return name.partition("/")[0] == OBSERVATIONS


class Nested:
    """Columns of one kind, with the interface of a record's fields for `as_given`."""

    def __init__(self, columns: Mapping[str, Array], kind: str) -> None:
        self._columns, self._kind = columns, kind

    def __getitem__(self, part: str) -> Array:
        return self._columns[f"{self._kind}/{part}" if part else self._kind]


def check_structure(info: DatasetInfo, columns: Mapping[str, Array]) -> None:
    """Raise DatasetError for columns of other names, types or lengths than `info` defines; values are not read."""
    wanted = columns_of(info)
    for name, array in columns.items():
        if array.dtype.hasobject:
            raise DatasetError(f"{name} has objects, and data are numbers: convert it to one of {_kinds()}")
    missing, odd = sorted({*wanted, "starts"} - set(columns)), sorted(set(columns) - {*wanted, "starts"})
    if missing or odd:
        what = f"there is no column {missing[0]!r}" if missing else f"the column {odd[0]!r} does not belong to it"
        raise DatasetError(f"{what}; a data set of these spaces has {', '.join(wanted)} and starts")
    starts = columns["starts"]
    if starts.dtype != np.int64 or starts.ndim != 1 or len(starts) < 1:
        raise DatasetError(f"starts is {starts.dtype} {starts.shape}, and must be int64 (episodes + 1,)")
    steps, episodes = len(columns["rewards"]), len(starts) - 1
    for name, column in wanted.items():
        shape = (steps + episodes if is_observed(name) else steps, *column.shape)
        if columns[name].dtype != column.dtype or columns[name].shape != shape:
            found = f"{columns[name].dtype} {columns[name].shape}"
            raise DatasetError(
                f"{name} is {found}, and must be {column.dtype} {shape} ({steps} steps, {episodes} episodes)"
            )


def check_starts(columns: Mapping[str, Array]) -> None:
    """Raise DatasetError unless episodes are consecutive: an index would lead from one into another."""
    starts, steps = columns["starts"], len(columns["rewards"])
    if starts[0] != 0 or starts[-1] != steps:
        raise DatasetError(f"starts goes from {starts[0]} to {starts[-1]}, and must go from 0 to {steps}, the steps")
    lengths = np.diff(starts)
    if (lengths < 1).any():
        episode = int(np.argmin(lengths >= 1))
        raise DatasetError(
            f"episode {episode} begins at step {starts[episode]} and ends at {starts[episode + 1]}: each has a step"
        )


def check_values(info: DatasetInfo, columns: Mapping[str, Array]) -> None:
    """Raise DatasetError for non-finite values, invalid choices, and episode ends at wrong steps."""
    check_starts(columns)
    for name, column in columns_of(info).items():
        for first, rows in stretches(columns[name]):
            _check_rows(name, column, rows, first)
    _check_ends(columns)


def stretches(array: Array) -> Iterator[tuple[int, Array]]:
    """Iterate over consecutive parts of a column, each with the number of its first row."""
    for first in range(0, len(array), STRETCH):
        yield first, array[first : first + STRETCH]


def _check_rows(name: str, column: Column, rows: Array, first: int) -> None:
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        place = np.argwhere(~np.isfinite(rows))[0]
        raise DatasetError(f"{name} is {rows[tuple(place)]} at {_place(place, first)}; data must be finite")
    if rows.dtype == np.bool_ and (rows.view(np.uint8) > 1).any():
        raise DatasetError(f"{name} has values that are neither true nor false")
    space = None if column.part is None else column.part.space
    if space is None or isinstance(space, Box):  # a controller may go to a limit and a sensor beyond it
        return
    low, high = choices_of(space)
    wrong = (rows < low) | (rows > high)
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise DatasetError(f"{name} is {rows[tuple(place)]} at {_place(place, first)}, which is none of {space}")


def choices_of(space: Space[Any]) -> tuple[Array, Array]:
    """Return the first and the last option of each choice of a space that has choices."""
    start = np.asarray(getattr(space, "start", 0), np.int64)
    counts = np.asarray(getattr(space, "nvec", getattr(space, "n", 2) if not space.shape else 2), np.int64)
    return start, start + counts - 1


def _check_ends(columns: Mapping[str, Array]) -> None:
    """Raise DatasetError unless every episode ends with its last step, by termination or truncation, and no other."""
    last = columns["starts"][1:] - 1
    ended = np.flatnonzero(columns["terminations"] | columns["truncations"])
    if np.array_equal(ended, last):
        return
    early = np.setdiff1d(ended, last)
    if len(early):
        step = int(early[0])
        episode = int(np.searchsorted(columns["starts"], step, "right")) - 1
        how = "terminations" if columns["terminations"][step] else "truncations"
        raise DatasetError(
            f"{how} is true at step {step}, within episode {episode}: the step after it would follow from another"
            " episode; begin a new one there"
        )
    episode = int(np.flatnonzero(~np.isin(last, ended))[0])
    raise DatasetError(
        f"episode {episode} ends at step {int(last[episode])} neither terminated nor truncated; where its recording was"
        " cut off, say truncated"
    )


def _place(place: Array, first: int) -> list[int]:
    return [int(place[0]) + first, *map(int, place[1:])]


def _kinds() -> str:
    return ", ".join(str(dtype) for dtype in NAMES)
