"""Keeping threads and processes on cores of their own, so that the system does not move them about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from velocirl.engine.targets.cores import available_cores


def cores_for(count: int) -> list[int]:
    """A core for each of so many threads or processes, of those that this process may use."""
    if not hasattr(os, "sched_setaffinity"):
        raise ValueError("pin needs Linux; leave it out here")
    if count > available_cores():
        raise ValueError(f"pin needs a core for each of {count} workers, and there are {available_cores()}: use fewer")
    return sorted(os.sched_getaffinity(0))[:count]


def pin_process(core: int) -> None:
    """Keep this process, and what it starts from now on, on a core."""
    os.sched_setaffinity(0, {core})


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Keep the thread that is at it on a core, as long as this lasts."""
    before = os.sched_getaffinity(0)  # of this thread: 0 is whoever asks
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
