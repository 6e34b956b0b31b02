"""Ctrl-C, SIGTERM and SIGHUP during training: finish the current iteration, save, then stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from velocirl.runs.deafness import SignalListener


class StopSignals:
    """Context in which the first signal only requests a stop; a second one stops at once, as usual."""

    # SIGHUP is sent when a terminal or connection closes; not every system has it.
    SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._listener: SignalListener | None = None
        self._at_once = False

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # Python handles signals there only
            for one in self.SIGNALS:
                if signal.getsignal(one) is not signal.SIG_IGN:  # ignored under nohup, for example
                    self._before[one] = signal.signal(one, self._receive)
            self._listener = SignalListener(self._before, lambda: self.received is not None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for one, handler in self._before.items():
            signal.signal(one, handler)
        self._before.clear()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let signals interrupt at once, as usual, while this context lasts: nothing learned can be lost yet."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def _receive(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.received = signal.Signals(number)
        for one, handler in self._before.items():
            signal.signal(one, handler)
        if self._at_once:
            self.raise_received()

    def raise_received(self) -> None:
        """Raise what the signal would have raised, after everything was saved."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is not None:
            raise SystemExit(128 + self.received)
