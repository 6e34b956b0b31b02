"""Callback that writes a run's heartbeat, which `velocirl monitor` displays."""

from __future__ import annotations

import itertools
import math
import os
import time
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

from velocirl.engine.targets.device_names import kind_of
from velocirl.monitor.gauges import gauges_of, learnt_figures
from velocirl.monitor.heartbeat_file import (
    LONGEST_NAME,
    MOST_NAMES,
    MOST_SAMPLES,
    HeartbeatState,
    Sample,
    write_heartbeat,
)
from velocirl.monitor.resource_use import ResourceReader
from velocirl.runs.callback import Callback
from velocirl.runs.directory import Run
from velocirl.runs.metrics import RETURN

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

EVERY = 1.0  # seconds
SPEED_OVER = 5  # samples
MOST_SHARE = 0.001  # of the time: where writing is slow, it happens less often
LONGEST_PAUSE = 30.0  # seconds
SHARE, TIME = "_share", "time/"


class Heartbeat(Callback):
    """Callback that writes the state of training into the run's directory once a second.

    An iteration without a write costs almost nothing, and learning is not affected. This callback must follow the
    recorder in the list of callbacks, because the recorder sets the run's final status.
    """

    def __init__(self, run: Run, resources: ResourceReader | None = None, every: float = EVERY) -> None:
        self._run, self._every = run, every
        self._resources = ResourceReader() if resources is None else resources
        self._due = 0.0
        self._seen: deque[tuple[float, int]] = deque(maxlen=SPEED_OVER + 1)  # times and steps
        self._history: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._costs: deque[float] = deque(maxlen=5)  # seconds that the last writes took
        self._warned = self._compiling = False

    def prepare(self, agent: Agent) -> None:
        """Write that code is being compiled; the next heartbeat follows when that is done."""
        self._compiling = True
        self._seen.append((time.perf_counter(), agent.steps))
        self._write(agent)

    def start(self, agent: Agent) -> None:
        """Write the first heartbeat of training."""
        if trains_on_cuda(agent):
            self._resources.watch_gpu()
        self._compiling = False
        self._seen.clear()
        self._seen.append((time.perf_counter(), agent.steps))
        self._write(agent)

    def step(self, agent: Agent) -> bool | None:
        """Write a heartbeat if one is due."""
        now = time.perf_counter()
        if now >= self._due:
            self._note(now, agent.steps)
            self._write(agent)
        return None

    def finish(self, agent: Agent) -> None:
        """Write the last heartbeat."""
        now = time.perf_counter()
        if not self._history or now - self._seen[-1][0] >= self._every / 2:  # a shorter sample would be noise
            self._note(now, agent.steps)
        self._write(agent)
        self._resources.close()

    def fail(self, agent: Agent, error: BaseException) -> None:  # noqa: ARG002 - a callback's signature
        """Write that training failed."""
        self._warned = True  # no warning on top of the current error
        self._write(agent)
        self._resources.close()

    def _note(self, now: float, steps: int) -> None:
        then, before = self._seen[-1]
        rate = max(steps - before, 0) / max(now - then, 1e-9)
        resources = self._resources.read()
        self._seen.append((now, steps))
        self._history.append(Sample(round(rate, 1), resources.cpu_percent, resources.memory_bytes))

    def _write(self, agent: Agent) -> None:
        began = time.perf_counter()
        try:
            write_heartbeat(self._run.files, self._state(agent))
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(f"the heartbeat of {self._run.name} could not be written: {error}", stacklevel=3)
        self._costs.append(time.perf_counter() - began)
        # The minimum of the last few: a single write may have waited for the processor.
        self._due = began + max(self._every, min(min(self._costs) / MOST_SHARE, LONGEST_PAUSE))

    def _state(self, agent: Agent) -> HeartbeatState:
        goal = agent.goal
        assert goal is not None  # noqa: S101 - in training there is one
        (then, before), (now, steps) = self._seen[0], self._seen[-1]
        mean = agent.metrics.get(RETURN)
        return HeartbeatState(
            time=round(time.time(), 3),
            pid=os.getpid(),
            status=self._run.description.status,
            steps=agent.steps,
            start=goal.start,
            total=goal.stop,
            steps_per_second=round(max(steps - before, 0) / max(now - then, 1e-9), 1),
            mean_return=None if mean is None or not math.isfinite(mean) else float(mean),
            phases=_bounded(phase_shares(agent.metrics)),
            resources=self._resources.read(),
            gauges=_bounded({**learnt_figures(agent), **gauges_of(agent)}),
            history=list(self._history),
            compiling=self._compiling,
        )


def phase_shares(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the fraction of the time per phase, by path, from the metrics of an iteration."""
    return {
        name.removeprefix(TIME).removesuffix(SHARE): float(value)
        for name, value in metrics.items()
        if name.startswith(TIME) and name.endswith(SHARE) and value is not None and math.isfinite(value)
    }


def trains_on_cuda(agent: Any) -> bool:
    """Return whether an agent learns on a GPU, with a network or a table."""
    return "cuda" in (kind_of(getattr(agent.config, "device", "")), getattr(agent.config, "runtime", None))


def _bounded(figures: dict[str, float]) -> dict[str, float]:
    """Keep as many values as a heartbeat may hold, so that readers can reject more."""
    kept = itertools.islice(figures.items(), MOST_NAMES)
    return {name[:LONGEST_NAME]: value if value == round(value) else round(value, 4) for name, value in kept}
