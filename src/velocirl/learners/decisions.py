"""Decisions by finished episodes, such as updates of a Lagrange multiplier; on a GPU, captured as graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from velocirl.engine.compiler.columns import Shared
from velocirl.engine.targets.launching import Work, by_row
from velocirl.program.counting.episodes import episodes_type, find_episodes, forget_episodes
from velocirl.program.task import Task


class Decisions:
    """Calls of an algorithm's functions of episodes, numbers and settings, for each agent."""

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
        """Decide by this process's sums (environments, 1 + constraints): the number of episodes, and their costs."""
        self._device.sum_rows(sums, self._totals)
        self._networks.reduce(self._totals)
        self._run(0)

    def deciding_again(self, sums: Any) -> Callable[[], None]:
        """Return a function that decides by one agent's sums on this device, and resets them after enough episodes."""
        forget = self._device.launch([Work(forget_episodes, (self._totals, self._enough, sums))], len(sums))

        def run() -> None:
            self.decide(sums)
            forget(0)

        return run

    def deciding_on_host(self, sums: Any) -> Callable[[], None]:
        """Return a function that decides by sums on the host, for environments that step there."""
        sums = np.asarray(sums)

        def run() -> None:
            totals = sums.sum(0)
            self._reducer.sum(totals)
            self._device.write(self._totals, totals[None])
            self._run(0)
            if totals[0] >= self._enough:
                sums[...] = 0.0

        return run
