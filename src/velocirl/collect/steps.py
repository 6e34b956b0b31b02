"""Steps into a replay buffer: environments, and the arrays of their steps, on any device.

The backend defines how a step runs: `block.steps` binds it to units, `batch.steps` to launches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from velocirl.collect.sources import Source
from velocirl.collect.step_arrays import make_step_arrays
from velocirl.program.rows.recording import Log
from velocirl.program.task import Task


class Steps:
    """Environments of this process and the log of their steps."""

    by_rounds = True  # whether the updates that are due follow each step of all environments
    collected = None  # there are no collectors

    def __init__(self, task: Task, device: Any, source: Source, max_steps: int) -> None:
        self.source, self.here = source, device.on_host() if source.on_host else device  # where environments step
        self.arrays = make_step_arrays(task, self.here, max_steps)
        self.in_kernels, self.on_host, self.envs, self.fleet = (
            source.in_kernels, source.on_host, source.envs, source.fleet,
        )  # fmt: skip

    @property
    def log(self) -> Log:
        """Log of the episodes that ended in this iteration."""
        return self.arrays.log

    def begin(self) -> None:
        """Begin an iteration."""
        self.source.begin()
        self.arrays.begin(self.here)

    def take_step(self) -> None:
        """Step the environments that Python steps."""
        self.source.host.step()

    def learnt(self, updates: int) -> None:
        """Do nothing: no collectors wait for updates."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state of the environments and the arrays of their steps."""
        return {**self.source.state(), **self.arrays.state(self.here)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved state; environments that Python steps begin new episodes."""
        self.arrays.load_state(self.here, state, episodes_continue=self.in_kernels)
        self.source.load_state(state)
