"""A thread for one rollout at a time, beside whoever learns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class CollectingThread:
    """One thread, which sleeps between rollouts; it ends with its owner, or after its rollout with Python."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._process: int | None = None
        self._last: Future[None] | None = None
        self._ends: list[float] = []  # when the last rollout ended, once it has
        self._waited = self._idle = 0.0  # seconds: of the learner for rollouts, and of this thread between them

    def begin(self, collect: Callable[..., None], *arguments: Any) -> Future[None]:
        """Start a rollout."""
        if self._executor is None or self._process != os.getpid():  # threads do not survive a fork
            self._executor, self._process = ThreadPoolExecutor(1, "velocirl-collecting"), os.getpid()
        self._idle += self._idle_now()
        self._ends = []
        self._last = self._executor.submit(_collect, self._ends, collect, arguments)
        return self._last

    def wait(self, collection: Future[None]) -> BaseException | None:
        """Wait for a rollout, and give back what it raised."""
        began = time.monotonic()
        try:
            return collection.exception()
        finally:
            self._waited += time.monotonic() - began

    def gauges(self) -> dict[str, float]:
        """Rollouts that wait to be learnt from, and how long learner and collector have waited for each other."""
        return {
            "queue/length": float(self._last is not None and self._last.done()),
            "learner/waiting_seconds": self._waited,
            "collector/waiting_seconds": self._idle + self._idle_now(),
        }

    def _idle_now(self) -> float:
        return time.monotonic() - self._ends[0] if self._ends else 0.0


def _collect(ends: list[float], collect: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """A rollout, and when it ended. The thread knows nothing of its owner, which could not end it otherwise."""
    try:
        collect(*arguments)
    finally:
        ends.append(time.monotonic())
