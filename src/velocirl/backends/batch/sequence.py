"""Ordered work of an update, combined into as few launches as its order allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.engine.targets.launching import Work

Function = Callable[[], None]


class Sequence:
    """Work for rows and agents, with calls in between; it can run many times.

    Parts may run only in some updates (`section`), or only in updates with an optimizer step (`stepping`).
    """

    def __init__(self, device: Any, rows: int, agents: int) -> None:
        self._device, self._counts = device, (rows, agents)
        self._every: str | None = None
        self._rows: list[Work] = []
        self._agents: list[tuple[Work, bool]] = []
        self._steps: list[tuple[str | None, Callable[[bool, bool], None]]] = []

    def run(self, due: frozenset[str], *, accumulate: bool, stepping: bool) -> None:
        """Run all work of the sections that are due; agents' work gets `place=1` if gradients accumulate, else 0."""
        for every, step in self._steps:
            if every is None or every in due:
                step(accumulate, stepping)

    def section(self, every: str | None) -> None:
        """Begin a section that runs only in updates where `every` is due, or with None in all."""
        if every != self._every:
            self.flush()
            self._every = every

    def for_rows(self, *works: Work) -> None:
        """Append work for each row."""
        self._launch_agents()
        self._rows += works

    def for_agents(self, work: Work, *, stepping: bool = False) -> None:
        """Append work for each agent."""
        self._launch_rows()
        self._agents.append((work, stepping))

    def call(self, function: Function, *, stepping: bool = False, waits: bool = False) -> None:
        """Append a call that needs the preceding work for rows; if it `waits`, also the work for agents."""
        self._launch_rows()
        if waits:
            self._launch_agents()

        def step(accumulate: bool, steps: bool) -> None:  # noqa: ARG001
            if steps or not stepping:
                function()

        self._steps.append((self._every, step))

    def call_with(self, function: Callable[[bool], None]) -> None:
        """Append a call whose argument is whether gradients accumulate."""
        self._launch_rows()
        self._steps.append((self._every, lambda accumulate, stepping: function(accumulate)))  # noqa: ARG005

    def flush(self) -> None:
        """Launch all pending work."""
        self._launch_rows()
        self._launch_agents()

    def _launch_rows(self) -> None:
        works, self._rows = self._rows, []
        if works:
            run = self._device.launch(works, self._counts[0])
            self._steps.append((self._every, lambda accumulate, stepping: run(0)))  # noqa: ARG005 - as every step

    def _launch_agents(self) -> None:
        waiting, self._agents = self._agents, []
        if not waiting:
            return
        every = self._device.launch([work for work, _ in waiting], self._counts[1])
        always = [work for work, stepping in waiting if not stepping]
        if len(always) == len(waiting):
            some = every
        else:
            some = self._device.launch(always, self._counts[1]) if always else None

        def step(accumulate: bool, stepping: bool) -> None:
            run = every if stepping else some
            if run is not None:
                run(int(accumulate))

        self._steps.append((self._every, step))
