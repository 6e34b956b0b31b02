"""Who is told how the tuning goes."""

from __future__ import annotations

import time
from typing import Protocol

from velocirl.runs.signals import StopSignals


class Watcher(Protocol):
    """Shows a person how far it is."""

    def begin(self, stage: str) -> None:
        """A stage begins."""
        ...

    def advance(self, share: float, detail: str = "") -> None:
        """So much of the stage is done, and `detail` comes next."""
        ...


class Attentive:
    """Hands everything on to another watcher, and raises at these moments what a signal asked for in between.

    A signal that is raised wherever Python happens to be may be lost in a destructor.
    """

    def __init__(self, watcher: Watcher, signals: StopSignals) -> None:
        self._watcher, self._signals = watcher, signals

    def begin(self, stage: str) -> None:
        """A stage begins."""
        self._signals.raise_received()
        self._watcher.begin(stage)

    def advance(self, share: float, detail: str = "") -> None:
        """So much of the stage is done."""
        self._signals.raise_received()
        self._watcher.advance(share, detail)


class Deadline:
    """The seconds that a stage may take."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.perf_counter()

    @property
    def used(self) -> float:
        """The seconds that are gone."""
        return time.perf_counter() - self._began

    @property
    def left(self) -> float:
        """The seconds that are left; 0 once it is over."""
        return max(self.seconds - self.used, 0.0)

    @property
    def share(self) -> float:
        """The share that is gone, at most 1."""
        return min(self.used / self.seconds, 1.0)
