"""Taking samples: warm-up, calibrated numbers of calls, and rounds in which all contestants have their turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Settings:
    """How long to measure. A sample is one timed series of calls; a round is one sample of every contestant."""

    warm_up_seconds: float = 0.3
    sample_seconds: float = 0.1
    fewest_rounds: int = 7
    most_rounds: int = 21
    budget_seconds: float = 12.0  # no further round once they have taken this long, where the fewest are done


THOROUGH = Settings()
QUICK = Settings(warm_up_seconds=0.05, sample_seconds=0.02, fewest_rounds=3, most_rounds=5, budget_seconds=1.0)


class Sampler(Protocol):
    """What takes the samples of one contestant."""

    @property
    def iterations(self) -> int:
        """The number of calls in a sample."""
        ...

    def prepare(self, settings: Settings) -> None:
        """Warm up and choose the number of calls."""
        ...

    def sample(self) -> float:
        """One sample, in the unit of the benchmark."""
        ...

    def close(self) -> None:
        """Let go of what was measured."""
        ...


@dataclass
class Timed:
    """Samples a call by the clock: `amount` of work per second or, without an amount, seconds per call."""

    call: Callable[[], object]
    amount: float | None = None
    closing: Callable[[], object] | None = None
    iterations: int = field(default=1, init=False)

    def prepare(self, settings: Settings) -> None:
        """Call until warm; how many calls were made in that time tells how many fill a sample."""
        self.call()  # the first may compile or load something, so it does not count
        calls, seconds = 0, 0.0
        while seconds < settings.warm_up_seconds or not calls:
            seconds += self._seconds(1)
            calls += 1
        self.iterations = max(1, round(calls * settings.sample_seconds / seconds))

    def sample(self) -> float:
        """Time one series of calls."""
        seconds = self._seconds(self.iterations)
        return seconds / self.iterations if self.amount is None else self.amount * self.iterations / seconds

    def close(self) -> None:
        """Let go of what was timed."""
        if self.closing is not None:
            self.closing()

    def _seconds(self, iterations: int) -> float:
        call = self.call
        start = time.perf_counter()
        for _ in range(iterations):
            call()
        return time.perf_counter() - start


@dataclass
class Counted:
    """Samples what a call returns: bytes, say. Nothing is timed, so nothing needs to be warm."""

    call: Callable[[], float]
    closing: Callable[[], object] | None = None
    iterations: int = field(default=1, init=False)

    def prepare(self, settings: Settings) -> None:
        """Nothing: a count is the same the first time."""

    def sample(self) -> float:
        """Count once."""
        return float(self.call())

    def close(self) -> None:
        """Let go of what was counted."""
        if self.closing is not None:
            self.closing()


def measure(
    samplers: Mapping[str, Sampler], settings: Settings, progress: Callable[[float], None]
) -> dict[str, list[float]]:
    """The samples of every contestant, sample i of each from round i; `progress` is told the share that is done.

    What slows the machine for a while so slows all of them; each round has an order of its own, so that nobody always
    runs in the wake of the same other one.
    """
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    for sampler in samplers.values():
        sampler.prepare(settings)
    shuffle = np.random.default_rng(0)
    start = time.perf_counter()
    for done in range(settings.most_rounds if samplers else 0):
        used = (time.perf_counter() - start) / settings.budget_seconds
        if done >= settings.fewest_rounds and used >= 1.0:
            break
        progress(max(done / settings.most_rounds, min(used, done / settings.fewest_rounds)))
        for name in shuffle.permutation(list(samplers)).tolist():
            samples[name].append(samplers[name].sample())
    progress(1.0)
    return samples
