"""A fixed piece of work that is taken in every round: how fast the machine itself was at that time.

Neighbours, heat and power change the speed of a machine by more than most changes of a program do. What they do to one
piece of work they do, much alike, to another; so two runs are compared by how they stand to this one. It is plain
Python: no change of velocirl, nor of a library, changes it.
"""

from __future__ import annotations

import time

from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Settings

ADDITIONS = 100_000  # about 5 ms


class Reference:
    """Samples the seconds that the fixed work takes on one core."""

    iterations, cost = 1, Cost()

    def __init__(self) -> None:
        self.by_processor: float | None = None

    def prepare(self, settings: Settings) -> None:  # noqa: ARG002 - the work is fixed
        """Once, so that everything is loaded."""
        self.sample()

    def sample(self) -> float:
        """The time by the clock; that of this thread on a processor is kept too."""
        start, used = time.perf_counter(), time.thread_time()
        total = 0
        for number in range(ADDITIONS):
            total += number * number % 7
        seconds, self.by_processor = time.perf_counter() - start, time.thread_time() - used
        return seconds

    def close(self) -> None:
        """Nothing is held."""
