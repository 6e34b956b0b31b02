"""Replay buffers in an agent's files: omitted, within the file, or as segments next to it.

The transitions are the array `memory.rows` of an agent's state; other names that begin with `memory.` belong to it.
Instead of an array, the rows may be any object that returns arrays for ranges of rows (`buffers.segments.Rows`): a
replay buffer on a GPU is copied to the host piece by piece.
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
STAYING = ("memory.rng", "memory.greatest")  # kept when a replay buffer is emptied
DIRECTORY = "memory"  # of the segments, next to the files that need them
LISTED = "memory_segments"  # key in the document of such a file
LARGE = 2**22  # bytes of rows from which a checkpoint stores segments; fewer are written in negligible time


def forget(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays with the replay buffer emptied, as in a new agent."""
    if ROWS not in arrays:
        return dict(arrays)
    emptied = {
        name: np.zeros_like(array)
        for name, array in arrays.items()
        if name.startswith(PREFIX) and name not in (*STAYING, ROWS)
    }
    return {**arrays, **emptied, ROWS: np.zeros(0, arrays[ROWS].dtype)}


def whole(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays with the rows of the replay buffer as an array."""
    return {**arrays, ROWS: np.asarray(arrays[ROWS][:])} if ROWS in arrays else dict(arrays)


def write_checkpoint(
    path: Path | ConfinedPath, arrays: Mapping[str, Any], document: Mapping[str, Any], known: Sequence[Segment] = ()
) -> list[Segment]:
    """Write a state, with a large replay buffer as segments next to it; `known` are segments of an earlier checkpoint.

    Returns the segments that the file needs.
    """
    rows = arrays.get(ROWS)
    if rows is None or len(rows) * rows.dtype.itemsize < LARGE:
        write_state(path, whole(arrays), document)
        return []
    segments = save_rows(_beside(path), rows, arrays[COUNTS], known)
    listed = {LISTED: [list(one) for one in segments]}
    write_state(path, {**arrays, ROWS: np.zeros(0, rows.dtype)}, {**document, **listed})
    return segments


def read_checkpoint(path: str | Path | ConfinedPath, *, memory: bool = True) -> State:
    """Read a state and the segments that it needs; without `memory`, with an empty replay buffer."""
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
    """Return the segments that a checkpoint needs; none if it is damaged, as it is of no use then."""
    try:
        return segments_from(read_state(path).document.get(LISTED, []))
    except (ValueError, FileNotFoundError):
        return []


def _beside(path: str | Path | ConfinedPath) -> ConfinedPath:
    """Return the directory of the segments that a file needs."""
    above = path.parent if isinstance(path, ConfinedPath) else ConfinedPath(Path(path).parent)
    return above / DIRECTORY
