"""Wall-clock time limit for a block of code."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class OutOfTime(BaseException):  # no Exception: handlers that catch errors must not catch it
    """Raised when the time limit has expired."""


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise OutOfTime inside this context after `seconds`; None for no limit.

    The exception is raised between two calls of compiled code. In threads other than the main one there is no limit,
    since signals reach only the main thread.
    """
    can = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not can:
        yield
        return

    def ring(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
