"""Progress reports and time limits of a tuning run."""

from __future__ import annotations

import time
from typing import Protocol

from velocirl.runs.signals import StopSignals


class Watcher(Protocol):
    """Progress display."""

    def begin(self, stage: str) -> None:
        """Begin a stage."""
        ...

    def advance(self, share: float, detail: str = "") -> None:
        """Show the finished fraction of the stage; `detail` comes next."""
        ...


class Attentive:
    """Watcher that forwards to another watcher, and raises pending signals at each call.

    A signal that is raised at an arbitrary point may be lost in a destructor.
    """

    def __init__(self, watcher: Watcher, signals: StopSignals) -> None:
        self._watcher, self._signals = watcher, signals

    def begin(self, stage: str) -> None:
        """Begin a stage."""
        self._signals.raise_received()
        self._watcher.begin(stage)

    def advance(self, share: float, detail: str = "") -> None:
        """Forward the finished fraction of the stage."""
        self._signals.raise_received()
        self._watcher.advance(share, detail)


class Deadline:
    """Time limit of a stage."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.perf_counter()

    @property
    def used(self) -> float:
        """Elapsed seconds."""
        return time.perf_counter() - self._began

    @property
    def left(self) -> float:
        """Remaining seconds, at least 0."""
        return max(self.seconds - self.used, 0.0)

    @property
    def share(self) -> float:
        """Elapsed fraction, at most 1."""
        return min(self.used / self.seconds, 1.0)
