"""Timing of training: seconds per phase, without the cold first iteration."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from velocirl.runs.callback import Callback
from velocirl.training.agent import Agent

CLOCK = "the time for it is over"  # stop reason when the time limit is reached


@dataclass
class Training:
    """Measurements of training, without the first iteration unless it was the only one."""

    seconds: float = 0.0
    steps: int = 0
    iterations: int = 0
    phases: dict[str, float] = field(default_factory=dict)
    first_seconds: float = 0.0  # of the first iteration
    interrupted: bool = False

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds if self.seconds > 0 else 0.0


class Watch(Callback):
    """Callback that sums an agent's phase counters over calls of `learn` and stops training at a time limit."""

    def __init__(self, seconds: float | None = None) -> None:
        self.expired = False
        self._limit = seconds
        self._deadline = float("inf")
        self._first, self._others = Training(), Training()
        self._began = 0.0
        self._steps = 0
        self._before: dict[str, float] = {}

    @property
    def training(self) -> Training:
        """Measurements so far."""
        seen = self._others if self._others.iterations else self._first
        return dataclasses.replace(seen, first_seconds=self._first.seconds)

    def start(self, agent: Agent) -> None:
        """Start counting."""
        self._mark(agent, {})
        if self._limit is not None and not self._first.iterations:
            self._deadline = self._began + self._limit

    def step(self, agent: Agent) -> bool | None:
        """Record the first iteration separately, and check the time limit."""
        if not self._first.iterations:
            self._add(agent, self._first)
            self._first.iterations = 1
            self._mark(agent, dict(agent.phases))
        else:
            self._others.iterations += 1
        if time.perf_counter() < self._deadline:
            return None
        self.expired = True
        agent.stopping = CLOCK
        return False

    def finish(self, agent: Agent) -> None:
        """Add the time of this call of `learn`."""
        self._add(agent, self._others)

    def fail(self, agent: Agent, error: BaseException) -> None:  # noqa: ARG002 - a callback's signature
        """Add the time before the error."""
        self._add(agent, self._others)

    def _mark(self, agent: Agent, before: dict[str, float]) -> None:
        self._began, self._steps, self._before = time.perf_counter(), agent.steps, before

    def _add(self, agent: Agent, training: Training) -> None:
        training.seconds += time.perf_counter() - self._began
        training.steps += agent.steps - self._steps
        for path, seconds in agent.phases.items():
            spent = max(seconds - self._before.get(path, 0.0), 0.0)
            training.phases[path] = training.phases.get(path, 0.0) + spent


def watch_training(
    agent: Agent,
    total_steps: int,
    seconds: float | None = None,
    callbacks: Iterable[Callback] = (),
    *,
    again: bool = True,
) -> Training:
    """Train for `total_steps` or, with `seconds`, until a time limit; returns the measurements.

    With `again`, a training that finishes before the limit starts again. Schedules therefore run as in a training of
    `total_steps`. Ctrl-C stops training; the measurements until then are returned.
    """
    watch, others = Watch(seconds), list(callbacks)
    try:
        while True:
            agent.learn(total_steps, [*others, watch])
            if seconds is None or watch.expired or not again or not agent.finished:
                break
    except KeyboardInterrupt:
        return dataclasses.replace(watch.training, interrupted=True)
    return watch.training
