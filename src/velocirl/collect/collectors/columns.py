"""Rollouts in rings: the column of a copy is one record, with all that was recorded of it and logged."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import rollout_type
from velocirl.program.rows.recording import Log
from velocirl.program.task import Task


class Columns(NamedTuple):
    """The arrays of a rollout, copies first, in the memory of whoever collected it or learns from it."""

    records: NDArray[np.uint8]  # (copies, horizon + 1, bytes)
    ends: NDArray[np.int32]  # (copies, horizon), and so are these
    returns: NDArray[np.float32]
    lengths: NDArray[np.int32]
    fault: NDArray[np.int32]  # (copies,)
    reported: NDArray[np.float32]  # (copies, numbers, horizon)
    reward_sums: NDArray[np.float64]  # (copies, 2)
    observation_sums: NDArray[np.float64]  # (copies, 2, inputs), or (0, 2, inputs) where nothing is normalised
    start_state: NDArray[np.float32]  # (copies, state size)
    frames: NDArray[np.uint8]  # (copies, stack + horizon, bytes), or (copies, 0, 0)

    def write(self, rows: NDArray[Any]) -> None:
        """Write a rollout into records of this kind."""
        for name, array in self._asdict().items():
            if array.size:
                rows[name] = array

    def read(self, rows: NDArray[Any], own: slice) -> None:
        """Read some copies' part of a rollout from records; their ends are counted among those of all copies."""
        for name, array in self._asdict().items():
            if array.size:
                array[own] = rows[name]
        copies, steps = self.ends.shape
        places = np.arange(own.start, own.stop)[:, None] + copies * np.arange(steps)
        self.ends[own] = np.where(rows["ends"] >= 0, places, -1)


def column_type(task: Task, state_size: int) -> np.dtype[Any]:
    """The record of one copy's rollout."""
    steps, inputs, frames = task.config.horizon, task.encoding.inputs, task.frames
    size = rollout_type(inputs, task.action, task.fields, task.values, frames).itemsize
    return np.dtype(
        [
            ("records", "u1", (steps + 1, size)),
            *((name, kind, (steps,)) for name, kind in (("ends", "i4"), ("returns", "f4"), ("lengths", "i4"))),
            ("fault", "i4"),
            ("reported", "f4", (task.report_rows, steps)),
            ("reward_sums", "f8", (2,)),
            ("observation_sums", "f8", (2, inputs if task.encoding.normalises else 0)),
            ("start_state", "f4", (state_size,)),
            ("frames", "u1", (0, 0) if frames is None else (frames.stack + steps, frames.size)),
        ],
        align=True,
    )


def columns_of(
    records: NDArray[Any], log: Log, reported: Any, reward_sums: Any, observation_sums: Any, start_state: Any = None,
    frames: Any = None,
) -> Columns:  # fmt: skip
    """Rollouts of records (copies, horizon + 1), as learners keep them, in the same memory.

    `frames` are ((stack + horizon) * copies, bytes).
    """
    copies = len(records)
    ends, returns, lengths = (np.asarray(one)[0].T for one in log[:3])
    pictures = np.zeros((0, 0), np.uint8) if frames is None else np.asarray(frames)
    return Columns(
        records=_bytes_of(records),
        ends=ends,
        returns=returns,
        lengths=lengths,
        fault=np.asarray(log.fault),
        reported=np.asarray(reported)[:, 0].transpose(2, 0, 1),
        reward_sums=np.asarray(reward_sums),
        observation_sums=np.asarray(observation_sums),
        start_state=np.zeros((copies, 0), np.float32) if start_state is None else np.asarray(start_state),
        frames=pictures.reshape(len(pictures) // copies, copies, -1 if len(pictures) else 0).transpose(1, 0, 2),
    )


def _bytes_of(records: NDArray[Any]) -> NDArray[np.uint8]:
    """Records with their bytes in a dimension of their own; the memory is the same."""
    shape, strides = (*records.shape, records.dtype.itemsize), (*records.strides, 1)
    return np.ndarray(shape, np.uint8, records, strides=strides)  # pyright: ignore[reportCallIssue]
