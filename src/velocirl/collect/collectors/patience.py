"""Lock-free waiting for another process: spin first, because most waits are short, then sleep longer and longer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

AWAKE, SHORTEST, LONGEST = 50e-6, 50e-6, 2e-3  # seconds: spinning, first sleep, longest sleep


def wait_for(ready: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> int:
    """Wait until `ready` is true, calling `meanwhile` between sleeps. Returns the nanoseconds waited."""
    if ready():
        return 0
    began = time.perf_counter_ns()
    asleep = began + int(AWAKE * 1e9)
    while time.perf_counter_ns() < asleep:
        os.sched_yield()
        if ready():
            return time.perf_counter_ns() - began
    nap = SHORTEST
    while not ready():
        time.sleep(nap)
        nap = min(2 * nap, LONGEST)
        meanwhile()
    return time.perf_counter_ns() - began
