"""The memory of an agent in its files: left out, within the file, or as segments beside it.

What an agent remembers is the array `memory.rows` of its state; other names that begin with `memory.` belong to it.
Instead of an array, the rows may be anything that gives arrays of stretches of them (`buffers.segments.Rows`): those of
a memory on a GPU come to this machine piece by piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.segments import Segment, load_rows, save_rows, segments_from
from velocirl.engine.disk.confined import ConfinedPath
from velocirl.runs.state_file import DamagedStateError, State, read_state, write_state

PREFIX = "memory."
ROWS, COUNTS = "memory.rows", "memory.counts"
STAYING = ("memory.rng", "memory.greatest")  # of a memory that is emptied
DIRECTORY = "memory"  # of the segments, beside the files that need them
LISTED = "memory_segments"  # in the document of such a file
LARGE = 2**22  # bytes of rows from which a checkpoint has them in segments; fewer are written in no time


def forget(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The same arrays with a memory that is empty, as a new one is."""
    if ROWS not in arrays:
        return dict(arrays)
    emptied = {
        name: np.zeros_like(array)
        for name, array in arrays.items()
        if name.startswith(PREFIX) and name not in (*STAYING, ROWS)
    }
    return {**arrays, **emptied, ROWS: np.zeros(0, arrays[ROWS].dtype)}


def whole(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The same arrays, all of them arrays."""
    return {**arrays, ROWS: np.asarray(arrays[ROWS][:])} if ROWS in arrays else dict(arrays)


def write_checkpoint(
    path: Path | ConfinedPath, arrays: Mapping[str, Any], document: Mapping[str, Any], known: Sequence[Segment] = ()
) -> list[Segment]:
    """Write a state, with the rows of a large memory as segments beside it; `known` are those of an earlier one."""
    rows = arrays.get(ROWS)
    if rows is None or len(rows) * rows.dtype.itemsize < LARGE:
        write_state(path, whole(arrays), document)
        return []
    segments = save_rows(_beside(path), rows, arrays[COUNTS], known)
    listed = {LISTED: [list(one) for one in segments]}
    write_state(path, {**arrays, ROWS: np.zeros(0, rows.dtype)}, {**document, **listed})
    return segments


def read_checkpoint(path: str | Path | ConfinedPath, *, memory: bool = True) -> State:
    """Read a state and the segments that it needs; or without them, as that of an agent that remembers nothing."""
    state = read_state(path)
    listed = state.document.pop(LISTED, None)
    if not memory:
        return State(forget(state.arrays), state.document)
    if listed is None:
        return state
    try:
        segments = segments_from(listed)
        rows = load_rows(_beside(path), state.arrays[ROWS].dtype, state.arrays[COUNTS], segments)
    except ValueError as error:
        raise DamagedStateError(f"{path} cannot be used with its memory: {error}") from error
    return State({**state.arrays, ROWS: rows}, state.document)


def segments_of(path: Path | ConfinedPath) -> list[Segment]:
    """The segments that a checkpoint needs; none where it is damaged, as it is of no use then."""
    try:
        return segments_from(read_state(path).document.get(LISTED, []))
    except (ValueError, FileNotFoundError):
        return []


def _beside(path: str | Path | ConfinedPath) -> ConfinedPath:
    """The directory of the segments that a file needs."""
    above = path.parent if isinstance(path, ConfinedPath) else ConfinedPath(Path(path).parent)
    return above / DIRECTORY
