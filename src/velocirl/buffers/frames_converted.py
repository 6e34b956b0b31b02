"""Conversion of frame buffers from and to replay buffers of whole observations, to resume with another learner.

Learners on CPU threads store the inputs of their networks: bytes multiplied by a factor. All learners did so in
older versions. Both conversions are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.frames import Room, final_at, frame_at, step_at
from velocirl.buffers.records import GOES_ON, LOST, TRUNCATED
from velocirl.buffers.replay import FILLED, TOTAL

KEPT = ("reward", "action", "mask", "next_mask", "ended", "costs")  # fields of a step, if the record has them
STRETCH = 2**12  # observations assembled at once


def to_frames(
    memory: Mapping[str, Any], room: Room, kind: np.dtype[Any], factor: np.float32
) -> dict[str, NDArray[Any]]:
    """Convert the rows of a replay buffer to a frame buffer's, with the frames that no row has."""
    whole, counts = memory["rows"], memory["counts"]
    rows = np.zeros(len(whole), kind)
    for name in set(KEPT).intersection(kind.names or ()):
        rows[name] = whole[name]
    rows["final"] = -1
    empty = {
        "edges": np.zeros((room.stack * room.copies, room.size), np.uint8),
        "cuts": np.zeros(room.copies, np.int64),
    }
    if len(whole) == 0:
        return {"rows": rows, "finals": np.zeros((0, room.size), np.uint8), **empty}
    older = (room.stack - 1) * room.size
    rows["observation"] = _bytes(whole["observation"][:, older:], factor)
    in_time = np.argsort(step_at(counts, room, np.arange(len(whole))), kind="stable").reshape(-1, room.copies)
    age = np.full(room.copies, room.stack - 1)  # assumed: all frames before the oldest are of its episode
    known = age.copy()
    for places in in_time:
        # Free-running collectors truncate episodes at the end of a batch; frames before the continuation are lost.
        stacks = whole["observation"][places].reshape(room.copies, room.stack, room.size)
        broken = (age == 0) & (stacks != stacks[:, -1:]).any((1, 2))
        known[broken], age[broken] = 0, room.stack - 1
        rows["age"][places] = age
        rows["ended"][places[known < age]] = LOST
        over = whole["ended"][places] != GOES_ON
        age, known = (np.where(over, 0, np.minimum(one + 1, room.stack - 1)) for one in (age, known))
    if (rows["ended"] == LOST).all():
        raise ValueError(
            "the memory of the state has no pictures that follow each other: go on with the device and the network by"
            " which it was saved"
        )
    before = _bytes(whole["observation"][in_time[0], :older], factor).reshape(room.copies, room.stack - 1, room.size)
    now = _bytes(whole["next_observation"][in_time[-1], older:], factor)
    edges = np.concatenate([before.swapaxes(0, 1).reshape(-1, room.size), now])
    finals, cuts = [], np.zeros(room.copies, np.int64)
    for copy in range(room.copies):
        column = in_time[:, copy]
        cut = column[rows["ended"][column] == TRUNCATED]
        cuts[copy] = len(cut)
        rows["ended"][cut[: -room.finals]] = LOST
        cut = cut[-room.finals :]
        slots = np.arange(cuts[copy] - len(cut), cuts[copy]) % room.finals
        rows["final"][cut] = slots
        finals.append(_bytes(whole["next_observation"][cut[np.argsort(slots)], older:], factor))
    return {"rows": rows, "edges": edges, "finals": np.concatenate(finals), "cuts": cuts}


def to_observations(
    memory: Mapping[str, Any], room: Room, kind: np.dtype[Any], factor: np.float32
) -> dict[str, NDArray[Any]]:
    """Convert the rows of a frame buffer to whole observations. Raises ValueError if frames are lost."""
    kept, counts = memory["rows"][:], memory["counts"]
    if (kept["ended"] == LOST).any():
        raise ValueError(
            "the memory of the state no longer has the last frames of some episodes, which the learner of CPU threads"
            " needs: go on with the device and the network by which it was saved"
        )
    rows = np.zeros(len(kept), kind)
    for name in set(KEPT).intersection(kind.names or ()):
        rows[name] = kept[name]
    if len(kept) == 0:
        return {"rows": rows}
    frames, places = np.zeros((room.rows, room.size), np.uint8), np.arange(len(kept))
    steps, copies = step_at(counts, room, places), places % room.copies
    frames[edge_places(room, counts)] = memory["edges"]
    frames[final_places(room, memory["cuts"])] = memory["finals"]
    frames[frame_at(room, steps, copies)] = kept["observation"]
    cut = kept["ended"] == TRUNCATED
    newest = np.where(cut, final_at(room, copies, kept["final"]), frame_at(room, steps + 1, copies))
    for first in range(0, len(kept), STRETCH):
        part = slice(first, first + STRETCH)
        step, copy, age = steps[part], copies[part], kept["age"][part]
        for k in range(room.stack):
            back, pixels = room.stack - 1 - k, slice(k * room.size, (k + 1) * room.size)
            seen = frame_at(room, step - np.minimum(back, age), copy)
            after = frame_at(room, step + 1 - np.minimum(back, age + 1), copy)
            after = np.where(np.minimum(back, age + 1) == 0, newest[part], after)
            rows["observation"][part, pixels] = frames[seen].astype(np.float32) * factor
            rows["next_observation"][part, pixels] = frames[after].astype(np.float32) * factor
    return {"rows": rows}


def edge_places(room: Room, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of the frames before the oldest record, and of the current frames."""
    copies, now = np.arange(room.copies), counts[TOTAL] // room.copies
    oldest = now - counts[FILLED] // room.copies
    steps = [*range(oldest - room.stack + 1, oldest), now]
    return np.concatenate([frame_at(room, step, copies) for step in steps])


def final_places(room: Room, cuts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of the last frames of truncated episodes, by environment."""
    used = np.minimum(cuts, room.finals)
    return np.concatenate([final_at(room, copy, np.arange(count)) for copy, count in enumerate(used)])


def _bytes(numbers: NDArray[np.float32], factor: np.float32) -> NDArray[np.uint8]:
    """Return the bytes whose products with `factor` are these numbers."""
    return np.rint(numbers / factor).astype(np.uint8)
