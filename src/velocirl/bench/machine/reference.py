"""Reference workload: fixed work timed in every round, which measures the machine's current speed.

Other programs, heat and power change a machine's speed by more than most code changes do. They affect one workload much
like another; two runs are therefore compared relative to this one. It is plain Python: no change of velocirl or of a
library affects it.
"""

from __future__ import annotations

import time

from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Settings

ADDITIONS = 100_000  # about 5 ms


class Reference:
    """Samples the seconds that the reference workload takes on one core."""

    iterations, cost = 1, Cost()

    def __init__(self) -> None:
        self.by_processor: float | None = None

    def prepare(self, settings: Settings) -> None:  # noqa: ARG002 - the work is fixed
        """Run once, so that everything is loaded."""
        self.sample()

    def sample(self) -> float:
        """Return the wall-clock seconds; this thread's CPU time is stored too."""
        start, used = time.perf_counter(), time.thread_time()
        total = 0
        for number in range(ADDITIONS):
            total += number * number % 7
        seconds, self.by_processor = time.perf_counter() - start, time.thread_time() - used
        return seconds

    def close(self) -> None:
        """Do nothing: no resource is held."""
