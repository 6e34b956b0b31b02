"""Waiting for another process without a lock: awake at first, because it is mostly short, then asleep for longer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

AWAKE, SHORTEST, LONGEST = 50e-6, 50e-6, 2e-3  # seconds: looking, and the first and the longest of the naps


def wait_for(ready: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> int:
    """Wait until something is so; `meanwhile` is called between naps. Gives the nanoseconds that it took."""
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
