"""Collector thread: one rollout at a time, in parallel with the learner."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class CollectingThread:
    """Collector thread, which sleeps between rollouts.

    It ends with its owner, or when Python exits, after the current rollout.
    """

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._process: int | None = None
        self._last: Future[None] | None = None
        self._ends: list[float] = []  # time when the last rollout ended; empty while it runs
        self._waited = self._idle = 0.0  # idle seconds: learner waiting for rollouts, thread between them

    def begin(self, collect: Callable[..., None], *arguments: Any) -> Future[None]:
        """Start a rollout."""
        if self._executor is None or self._process != os.getpid():  # threads do not survive a fork
            self._executor, self._process = ThreadPoolExecutor(1, "velocirl-collecting"), os.getpid()
        self._idle += self._idle_now()
        self._ends = []
        self._last = self._executor.submit(_collect, self._ends, collect, arguments)
        return self._last

    def wait(self, collection: Future[None]) -> BaseException | None:
        """Wait for a rollout; returns its exception, or None."""
        began = time.monotonic()
        try:
            return collection.exception()
        finally:
            self._waited += time.monotonic() - began

    def gauges(self) -> dict[str, float]:
        """Return the number of finished, unused rollouts and the idle seconds of learner and collector."""
        return {
            "queue/length": float(self._last is not None and self._last.done()),
            "learner/waiting_seconds": self._waited,
            "collector/waiting_seconds": self._idle + self._idle_now(),
        }

    def _idle_now(self) -> float:
        return time.monotonic() - self._ends[0] if self._ends else 0.0


def _collect(ends: list[float], collect: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Collect a rollout and record when it ended; holds no reference to the owner, which could not end it otherwise."""
    try:
        collect(*arguments)
    finally:
        ends.append(time.monotonic())
