"""Collecting while somebody learns: in a thread of its own; on a GPU, see `torch_background`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from velocirl.backends.batch.overlap.collecting_thread import CollectingThread


class Background(Protocol):
    """Runs one collection at a time beside the caller's own work."""

    full: bool  # whether there is a rollout that nobody has learnt from, or will be

    @property
    def holds(self) -> bool:
        """Whether it is there once it is done: not where collecting it has failed."""
        ...

    @property
    def stream(self) -> Any:
        """Where it is collected, if that is a stream."""
        ...

    def start(self, collect: Callable[[], None]) -> None:
        """Begin a rollout, after everything that the caller has done so far."""
        ...

    def join(self) -> None:
        """Let what the caller does from now on come after the rollout."""
        ...

    def wait(self) -> None:
        """Return when the rollout is done."""
        ...

    def gauges(self) -> dict[str, float]:
        """What is known of the waiting of learner and collector."""
        ...


class ThreadBackground:
    """A thread, for environments that step in Python."""

    def __init__(self) -> None:
        self.full, self.stream = False, None
        self._thread = CollectingThread()
        self._running: Future[None] | None = None

    @property
    def holds(self) -> bool:
        """Whether there is a rollout, once it is done."""
        return self.full and (self._running is None or self._running.exception() is None)

    def start(self, collect: Callable[[], None]) -> None:
        """Begin a rollout."""
        self.full = True
        self._running = self._thread.begin(collect)

    def join(self) -> None:
        """Wait for it; what it raised is raised here. Where this waiting is interrupted, it is still under way."""
        error = None if self._running is None else self._thread.wait(self._running)
        self._running, self.full = None, False
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait for it, and leave what it raised to `join`."""
        if self._running is not None:
            self._running.exception()

    def gauges(self) -> dict[str, float]:
        """Whether a rollout waits to be learnt from, and how long learner and collector have waited for each other."""
        return self._thread.gauges()
