"""Background collection during learning, in a thread; `backends.torch.background` uses a second CUDA stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from velocirl.backends.batch.overlap.collecting_thread import CollectingThread


class Background(Protocol):
    """Runner of one collection at a time, in parallel with the caller."""

    full: bool  # whether an unused rollout exists or is being collected

    @property
    def holds(self) -> bool:
        """True if an unused rollout exists or will exist, False if its collection failed."""
        ...

    @property
    def stream(self) -> Any:
        """Stream of the collection, or None."""
        ...

    def start(self, collect: Callable[[], None]) -> None:
        """Begin a rollout, ordered after all of the caller's work so far."""
        ...

    def join(self) -> None:
        """Order the caller's further work after the rollout."""
        ...

    def wait(self) -> None:
        """Return when the rollout is done."""
        ...

    def gauges(self) -> dict[str, float]:
        """Return the idle times of learner and collector, where they are known."""
        ...


class ThreadBackground:
    """Background thread, for environments that step in Python."""

    def __init__(self) -> None:
        self.full, self.stream = False, None
        self._thread = CollectingThread()
        self._running: Future[None] | None = None

    @property
    def holds(self) -> bool:
        """True if an unused rollout exists or will exist, False if its collection failed."""
        return self.full and (self._running is None or self._running.exception() is None)

    def start(self, collect: Callable[[], None]) -> None:
        """Begin a rollout."""
        self.full = True
        self._running = self._thread.begin(collect)

    def join(self) -> None:
        """Wait for the rollout and raise its error, if any. After an interrupted wait, it is still running."""
        error = None if self._running is None else self._thread.wait(self._running)
        self._running, self.full = None, False
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait for the rollout; `join` raises its error."""
        if self._running is not None:
            self._running.exception()

    def gauges(self) -> dict[str, float]:
        """Return the number of finished, unused rollouts and the idle times of learner and collector."""
        return self._thread.gauges()
