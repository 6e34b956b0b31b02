"""A fixed piece of work that is taken in every round: how fast the machine itself was at that time.

Neighbours, heat and power change the speed of a machine by more than most changes of a program do. What they do to one
piece of work they do, much alike, to another; so two runs are compared by how they stand to this one. It is NumPy's
alone: no change of velocirl changes it.
"""

from __future__ import annotations

import time

import numpy as np

from velocirl.bench.cost import Cost
from velocirl.bench.measuring import Settings

NUMBERS, REPEATS = 8192, 40  # 64 kB, which stay in the core's own cache; about 5 ms


class Reference:
    """Samples the seconds that the fixed work takes on one core."""

    iterations, cost = REPEATS, Cost()

    def __init__(self) -> None:
        self.by_processor: float | None = None
        self._numbers = np.linspace(0.1, 1.0, NUMBERS)
        self._results = np.empty_like(self._numbers)

    def prepare(self, settings: Settings) -> None:  # noqa: ARG002 - the work is fixed
        """Once, so that everything is loaded."""
        self.sample()

    def sample(self) -> float:
        """The shorter of two times: what ended a moment ago, and its threads, may still be on the way out."""
        seconds, self.by_processor = min(self._seconds(), self._seconds())
        return seconds

    def close(self) -> None:
        """Nothing is held."""

    def _seconds(self) -> tuple[float, float]:
        """By the clock, and by this thread's own time on a processor."""
        start, used = time.perf_counter(), time.thread_time()
        for _ in range(REPEATS):
            np.exp(self._numbers, out=self._results)
            np.sqrt(self._results, out=self._results)
        return time.perf_counter() - start, time.thread_time() - used
