"""Rollouts in rings: one record holds an environment's whole rollout, with its sums and log."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import rollout_type
from velocirl.program.rows.recording import Log
from velocirl.program.task import Task


class Columns(NamedTuple):
    """Arrays of a rollout, environments first, in the memory of its collector or learner."""

    records: NDArray[np.uint8]  # (environments, horizon + 1, bytes)
    ends: NDArray[np.int32]  # (environments, horizon), as returns and lengths
    returns: NDArray[np.float32]
    lengths: NDArray[np.int32]
    fault: NDArray[np.int32]  # (environments,)
    reported: NDArray[np.float32]  # (environments, fields, horizon)
    reward_sums: NDArray[np.float64]  # (environments, 2)
    observation_sums: NDArray[np.float64]  # (environments, 2, inputs), or (0, 2, inputs) without normalization
    start_state: NDArray[np.float32]  # (environments, state size)
    frames: NDArray[np.uint8]  # (environments, stack + horizon, bytes), or (environments, 0, 0)

    def write(self, rows: NDArray[Any]) -> None:
        """Write the rollout into records of `column_type`."""
        for name, array in self._asdict().items():
            if array.size:
                rows[name] = array

    def read(self, rows: NDArray[Any], own: slice) -> None:
        """Read the rollout of environments `own` from records; renumber their ends among all environments."""
        for name, array in self._asdict().items():
            if array.size:
                array[own] = rows[name]
        copies, steps = self.ends.shape
        places = np.arange(own.start, own.stop)[:, None] + copies * np.arange(steps)
        self.ends[own] = np.where(rows["ends"] >= 0, places, -1)


def column_type(task: Task, state_size: int) -> np.dtype[Any]:
    """Return the record type of one environment's rollout."""
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
    """Return rollout records (environments, horizon + 1) of a learner as columns, in the same memory.

    `frames` has the shape ((stack + horizon) * environments, bytes).
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
    """View records with their bytes as an extra dimension, in the same memory."""
    shape, strides = (*records.shape, records.dtype.itemsize), (*records.strides, 1)
    return np.ndarray(shape, np.uint8, records, strides=strides)  # pyright: ignore[reportCallIssue]
