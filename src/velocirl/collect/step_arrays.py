"""Arrays of steps into a replay buffer: random streams, exploration noise, and the log of an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.program.rows.recording import Log
from velocirl.program.saved import SUMS
from velocirl.program.task import Task


class StepArrays(NamedTuple):
    """Arrays with a row for each environment, on the device where these step."""

    rng: Any  # (environments, 2) random streams of actions
    noise: Any  # (environments, action size) kept by exploration from step to step
    log: Log
    reported: Any  # (fields, agents, steps, environments per agent)
    sums: Any  # (environments, 1 + constraints) of episodes since the last decision; None without decisions

    def begin(self, device: Any) -> None:
        """Begin the log of an iteration."""
        device.fill(self.log.ends, -1)
        device.fill(self.log.fault, 0)
        device.fill(self.reported, 0)

    def state(self, device: Any) -> dict[str, NDArray[Any]]:
        """Return the arrays that determine the next steps."""
        own = {"policy.rng": device.fetch(self.rng), "policy.noise": device.fetch(self.noise)}
        return own if self.sums is None else {**own, SUMS: device.fetch(self.sums)}

    def load_state(self, device: Any, state: Mapping[str, NDArray[Any]], *, episodes_continue: bool) -> None:
        """Continue from a saved state; the noise of an episode that begins is zero."""
        device.store(self.rng, state["policy.rng"])
        device.store(self.noise, state["policy.noise"] if episodes_continue else np.zeros_like(state["policy.noise"]))
        if self.sums is not None:
            device.store(self.sums, state[SUMS])


def make_step_arrays(task: Task, device: Any, max_steps: int) -> StepArrays:
    """Allocate the arrays for iterations of at most `max_steps` steps of every environment."""
    part, zeros = task.part, device.zeros
    copies, ends = part.copies, (1, max_steps, part.copies)
    log = Log(zeros(*ends, dtype=np.int32), zeros(*ends), zeros(*ends, dtype=np.int32), zeros(copies, dtype=np.int32))
    sums = zeros(copies, 1 + len(task.constraints), dtype=np.float64) if task.decisions else None
    rng = device.put(random.streams(task.seeds.policy, copies, part.first))
    return StepArrays(rng, zeros(copies, task.head.action_size), log, zeros(task.report_rows, *ends), sums)
