"""Decisions by the episodes that ended, such as of a Lagrange multiplier; on a GPU, recorded as graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from velocirl.engine.compiler.columns import Shared
from velocirl.engine.targets.launching import Work, by_row
from velocirl.program.counting.episodes import episodes_type, find_episodes, forget_episodes
from velocirl.program.task import Task


class Decisions:
    """Calls an algorithm's functions of episodes, numbers and settings, for each agent."""

    def __init__(self, task: Task, device: Any, networks: Any, agents: int) -> None:
        self._device, self._networks, self._enough = device, networks, task.decided_by
        self._reducer = task.reducer
        self._totals = device.zeros(agents, 1 + len(task.constraints), dtype=np.float64)
        episodes = device.records((agents,), episodes_type(len(task.constraints)))
        numbers = networks.number_records
        known = {"episodes": episodes, "numbers": numbers, "settings": Shared(device.shown(task.settings))}
        calls = [Work(by_row(one.function), tuple(known[name] for name in one.arguments)) for one in task.decisions]
        self._run = device.launch([Work(find_episodes, (self._totals, self._enough, episodes)), *calls], agents)

    def decide(self, sums: Any) -> None:
        """Decide by the sums (copies, 1 + constraints) of this process's copies: how many episodes, and their costs."""
        self._device.sum_rows(sums, self._totals)
        self._networks.reduce(self._totals)
        self._run(0)

    def deciding_again(self, sums: Any) -> Callable[[], None]:
        """What decides by such sums of one agent on this device, which begin anew once there was enough in them."""
        forget = self._device.launch([Work(forget_episodes, (self._totals, self._enough, sums))], len(sums))

        def run() -> None:
            self.decide(sums)
            forget(0)

        return run

    def deciding_on_host(self, sums: Any) -> Callable[[], None]:
        """The same of sums on the host, where environments step there."""
        sums = np.asarray(sums)

        def run() -> None:
            totals = sums.sum(0)
            self._reducer.sum(totals)
            self._device.write(self._totals, totals[None])
            self._run(0)
            if totals[0] >= self._enough:
                sums[...] = 0.0

        return run
