"""Time limit for calls in plain Python, in any thread.

A function that loops forever in its first steps is interrupted, and the error names its line. A compiled function could
not be interrupted: it would neither return nor react to a signal.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

SECONDS = 30.0


class TookTooLong(Exception):  # noqa: N818 - it says what happened
    """Call that exceeded the time limit; its traceback ends at the interrupted line."""

    def __str__(self) -> str:
        return (
            f"has not come back for {_limit():.0f} s: does every loop of it end?"
            " If it really takes so long, set VELOCIRL_PATIENCE to more seconds"
        )


class Patience:
    """Context whose calls are watched by a thread, which interrupts one that takes too long."""

    def __init__(self) -> None:
        self._caller, self._seconds = threading.get_ident(), _limit()
        self._since: float | None = None
        self._over = threading.Event()

    def __enter__(self) -> Self:
        if not _debugged():  # a debugger's user may take any time
            threading.Thread(target=self._watch, name="velocirl-patience", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function under the time limit; returns its result."""
        self._since = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self._since = None

    def _watch(self) -> None:
        while not self._over.wait(self._seconds / 10):
            since = self._since
            if since is not None and time.monotonic() - since > self._seconds:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._caller), ctypes.py_object(TookTooLong))
                return


def _limit() -> float:
    try:
        return max(float(os.environ.get("VELOCIRL_PATIENCE", SECONDS)), 0.1)
    except ValueError:
        return SECONDS


def _debugged() -> bool:
    monitoring = getattr(sys, "monitoring", None)
    return sys.gettrace() is not None or (
        monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
    )
