"""Rollout records on one device, with their episode log and the sums for normalizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.frames.film import make_film
from velocirl.buffers.records import aligned_records, narrow, rollout_type, without_gaps
from velocirl.collect.collectors.columns import Columns, columns_of
from velocirl.engine.compiler.columns import Shared
from velocirl.engine.disk.allowance import claim
from velocirl.engine.disk.saved import named, within
from velocirl.program.rows.recording import Log
from velocirl.program.task import Task

WAITING = "waiting"  # name prefix of a collected rollout that no update has used yet


class RolloutRecords:
    """Records of one rollout, its episode log, and the sums that update the normalizers."""

    def __init__(self, task: Task, device: Any, agents: int, state_size: int, cuts: int = 0) -> None:
        """Allocate the arrays; `cuts` is the number of truncated episodes whose last frames fit."""
        config, inputs, zeros = task.config, task.encoding.inputs, device.zeros
        own = task.part.copies
        copies, times = agents * own, config.horizon + 1
        kind = rollout_type(inputs, task.action, task.fields, task.values, task.frames)
        if device.copies_first:
            self.memory = self.records = aligned_records((copies, times), kind)
        else:
            if device.name != "cuda":
                rows, frames = times * copies, task.frames
                pixels = 0 if frames is None else (rows + (frames.stack - 1) * copies + cuts) * frames.size
                claim(rows * kind.itemsize + pixels, f"a rollout of {rows - copies:,} steps (num_envs, horizon)")
            # Neighboring environments are contiguous, as a GPU writes them.
            self.memory = device.records((times, copies), kind)
            self.records = self.memory.transpose(1, 0)  # (environments, horizon + 1)
        self.film = None if task.frames is None else make_film(device, task.frames, config.horizon, copies, cuts)
        ends = agents, config.horizon, own
        self.log = Log(
            zeros(*ends, dtype=np.int32), zeros(*ends), zeros(*ends, dtype=np.int32), zeros(copies, dtype=np.int32)
        )
        self.reported = zeros(task.report_rows, *ends)
        self.reward_sums = zeros(copies, 2, dtype=np.float64)
        self.observation_sums = zeros(copies if task.encoding.normalises else 0, 2, inputs, dtype=np.float64)
        self.start_state = zeros(copies, state_size)  # recurrent state before the first step
        self._task, self._device = task, device

    def columns_for(self, function: Callable[..., Any], names: Sequence[str]) -> tuple[Callable[..., Any], Any]:
        """Return `function` over an environment's column in time, and the named columns."""
        rows, settings = narrow(self.records), self._device.shown(self._task.settings)
        return function, tuple(Shared(settings) if name == "settings" else rows[name] for name in names)

    def take_over(self, other: RolloutRecords) -> None:
        """Copy another rollout, which may be on the host."""
        for own, given in zip(self._arrays().values(), other._arrays().values(), strict=True):
            self._device.copy(own, given)

    def contents(self) -> dict[str, NDArray[Any]]:
        """Return the rollout's arrays for a file, ordered by step; empty after a non-finite value."""
        arrays = {name: self._device.fetch(array) for name, array in self._arrays().items()}
        if arrays["fault"].any():
            return {}
        records = without_gaps(self._by_step(arrays["records"]))
        return named(WAITING, {**arrays, "records": records.view(np.uint8).reshape(len(records), -1)})

    def load_contents(self, state: Mapping[str, NDArray[Any]]) -> bool:
        """Load the arrays of `contents` from a saved state. Returns whether they exist with these sizes."""
        given, own = within(WAITING, state), self._arrays()
        width = self.records.shape[0] * self.memory.dtype.itemsize
        if "records" not in given or given["records"].shape[1] != width:  # none, or of another learner's records
            return False
        given["records"] = self._by_step(given["records"].view(self.memory.dtype))
        if not all(name in given and given[name].shape == array.shape for name, array in own.items()):
            return False
        for name, array in own.items():
            self._device.store(array, given[name])
        return True

    def columns(self) -> Columns:
        """Return the rollout in the layout of rings; the records must be on the host."""
        film = self.film
        return columns_of(
            np.asarray(self.records), self.log, self.reported, self.reward_sums, self.observation_sums,
            self.start_state, None if film is None else film.frames[: film.cuts_from],
        )  # fmt: skip

    def _by_step(self, records: NDArray[Any]) -> NDArray[Any]:
        """Convert records from the memory's layout to the file's, or back."""
        return records.T if self._device.copies_first else records

    def _arrays(self) -> dict[str, Any]:
        log = self.log
        return {
            "records": self.memory, "ends": log.ends, "returns": log.returns, "lengths": log.lengths,
            "fault": log.fault, "reward_sums": self.reward_sums, "observation_sums": self.observation_sums,
            "start_state": self.start_state, **({"reported": self.reported} if len(self.reported) else {}),
            **({} if self.film is None else {"frames": self.film.frames[: self.film.cuts_from]}),
        }  # fmt: skip
