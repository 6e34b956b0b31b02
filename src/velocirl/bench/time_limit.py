"""A limit on how long something may take, by the clock of the system."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class OutOfTime(BaseException):  # no error: what only catches errors should not catch it
    """The time is over."""


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise OutOfTime in what is done within this context, once so many seconds have passed; None for no limit.

    It is heard between two calls of compiled code. Other threads than the main one know no alarm, and no limit.
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
