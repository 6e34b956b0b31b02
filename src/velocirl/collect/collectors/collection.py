"""Collectors from the learner's side: start, weights, random streams, supervision and metrics."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from velocirl.collect.collectors.board import Board, Plan
from velocirl.collect.collectors.crew import Crew
from velocirl.collect.collectors.ring import ACTED, DROPPED, GIVEN, WAITED, Ring, Shape
from velocirl.collect.collectors.setup import environment_bytes, setup_bytes
from velocirl.engine import random
from velocirl.program.task import Task
from velocirl.vector.host.workers import open_memory


class Collection:
    """Collectors with rings of one shape; `content` returns the learner's weights as bytes."""

    def __init__(self, task: Task, shape: Shape, ahead: int, content: Callable[[], NDArray[np.uint8]]) -> None:
        """Allocate the shared memory; paced collectors run `ahead` rounds ahead."""
        config = task.config
        self.paced, self._content = config.collect_mode == "paced", content
        self.plan = Plan(config.collectors, shape, len(content()), ahead, self.paced)
        self._descriptor = open_memory()
        weakref.finalize(self, os.close, self._descriptor)
        self.board = Board(self.plan, self._descriptor)
        self.rings = self.board.rings
        streams = random.streams(task.seeds.policy, config.num_envs)
        for own, ring in self._shares():
            ring.rng[:] = streams[own]
        environment = environment_bytes(task.source)
        self._crew: Crew | None = None

        def start() -> Crew:
            return Crew(
                task.source.id, self.rings, self.board.stopped, self._descriptor,
                lambda number, start: setup_bytes(task, self.plan, number, environment, start),
                config.collector_timeout, config.collector_restarts,
            )  # fmt: skip

        self._start_crew = start
        self._rounds = 0  # received from each collector
        self._resting = True
        self._updates = 0
        self._episodes = self._seed = 0
        self._waited = self._processed = self._batches = self._left_out = self._lost = 0
        self._rate, self._since, self._before = 0.0, 0.0, 0

    def start(self) -> None:
        """Start the processes, and wait until all of them are ready."""
        if self._crew is None:
            self._crew = self._start_crew()
        elif self._crew.closed:
            raise RuntimeError(
                "this agent's collectors ended with a training that failed: make the agent anew, or load what was saved"
            )

    def publish(self) -> None:
        """Publish the current weights to the collectors."""
        self.board.weights.publish(self._content(), self._updates)

    @property
    def streams(self) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """Random streams of actions and what environments keep between rounds; valid while none collects."""
        return np.concatenate([ring.rng for ring in self.rings]), np.concatenate([ring.kept for ring in self.rings])

    def begin_anew(self, streams: NDArray[np.uint64]) -> None:
        """Continue with new episodes and these streams, from which their seed is derived."""
        for own, ring in self._shares():
            ring.rng[:], ring.kept[:] = streams[own], 0.0
        self._episodes, self._seed = self._episodes + 1, int(streams[0, 0] >> np.uint64(33))

    @property
    def processes(self) -> list[int]:
        """Process IDs of the collectors."""
        return [] if self._crew is None else self._crew.processes

    @property
    def processed(self) -> int:
        """Number of transitions that the learner has received."""
        return self._processed

    def gauges(self) -> dict[str, float]:
        """Return the metrics of the collectors.

        Counts run from the start of the collectors. They are of transitions, except batches, updates and restarts.
        Waiting seconds of collectors are a mean over them. The rate is the previous iteration's, in transitions per
        second. The age of weights is the policy lag of the oldest that act, in updates.
        """
        counts = np.sum([ring.counts for ring in self.rings], axis=0)
        age = self._updates - min(int(ring.counts[ACTED]) for ring in self.rings)
        transitions, crew = self.plan.shape.copies * self.plan.shape.steps, self._crew
        return {
            "collectors": len(self.rings),
            "collector/given": float(counts[GIVEN]) * transitions,
            "collector/dropped": float(counts[DROPPED]) * transitions + self._lost,
            "collector/ring_fill": max(len(ring) / (ring.slots - 1) for ring in self.rings),
            "collector/waiting_seconds": float(counts[WAITED]) * 1e-9 / len(self.rings),
            "collector/age_of_weights": float(age),
            "learner/processed": float(self._processed),
            "learner/batches": float(self._batches),
            "learner/updates_left_out": float(self._left_out),
            "learner/waiting_seconds": self._waited * 1e-9,
            "learner/rate": self._rate,
            "restarts": 0.0 if crew is None else float(crew.restarts),
        }

    def close(self) -> None:
        """End all collectors."""
        if self._crew is not None:
            self._crew.close()

    def _resume(self) -> None:
        """Make sure that all collectors run before an iteration, and expect progress from now on.

        Free-running collectors that were not paused never stopped: iterations may be shorter than the hang timeout.
        """
        self.start()
        assert self._crew is not None  # noqa: S101 - started
        if self.paced or self._resting:
            self._crew.resume()
        now = time.monotonic()
        if self._since:
            self._rate = (self._processed - self._before) / max(now - self._since, 1e-9)
        self._since, self._before = now, self._processed

    def _watch(self, busy: Callable[[int], bool] = lambda _: True) -> None:
        """Replace collectors that failed, and busy ones that hang."""
        assert self._crew is not None  # noqa: S101 - started
        self._crew.watch(busy)

    def _shares(self) -> Iterator[tuple[slice, Ring]]:
        """Iterate over the rings, each with the slice of its environments."""
        copies = self.plan.shape.copies
        return ((slice(n * copies, (n + 1) * copies), ring) for n, ring in enumerate(self.rings))
