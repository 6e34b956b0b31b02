"""CPU affinity: threads and processes pinned to cores, so that the system does not move them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from velocirl.engine.targets.cores import available_cores


def cores_for(count: int) -> list[int]:
    """Return a core for each of `count` threads or processes, of those that this process may use."""
    if not hasattr(os, "sched_setaffinity"):
        raise ValueError("pin needs Linux; leave it out here")
    if count > available_cores():
        raise ValueError(f"pin needs a core for each of {count} workers, and there are {available_cores()}: use fewer")
    return sorted(os.sched_getaffinity(0))[:count]


def pin_process(core: int) -> None:
    """Pin this process, and those it starts from now on, to a core."""
    os.sched_setaffinity(0, {core})


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pin the calling thread to a core within this context."""
    before = os.sched_getaffinity(0)  # 0: the calling thread
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
