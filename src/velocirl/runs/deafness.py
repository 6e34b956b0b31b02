"""Signal handling while compiled code runs and Python's handlers cannot: a thread reads the signals."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

GRACE = 10.0  # seconds after a signal until a message explains the delay
MOMENT = 1.0  # seconds until another signal counts as a second one, and that Python gets to handle it itself
DEAF = (
    "\nstill in compiled code, {:.0f} s after the signal: an iteration that takes so long, or an environment whose loop"
    " never ends. Another Ctrl-C or SIGTERM ends it at once, without saving what came after the last checkpoint\n"
)
END = 0  # unused as a signal number


class SignalListener:
    """Thread that reads signals as they are delivered; ends the process at a second one that Python does not handle.

    `heard` returns whether Python has handled a signal. Create and close the listener in the main thread.
    """

    def __init__(self, numbers: Collection[int], heard: Callable[[], bool]) -> None:
        self._numbers, self._heard = frozenset(numbers), heard
        self._own, self._end = os.pipe()
        os.set_blocking(self._end, False)
        self._before = signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="velocirl-signals", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        signal.set_wakeup_fd(self._before, warn_on_full_buffer=False)
        os.write(self._end, bytes([END]))
        os.close(self._end)

    def _listen(self) -> None:
        first, patience = None, None  # time of the first signal, and the time to wait for a reaction
        while True:
            if not select.select([self._own], [], [], patience)[0]:
                patience = None
                if not self._heard():
                    _say(DEAF.format(GRACE))
                continue
            number = os.read(self._own, 1)[0]
            if number == END:
                os.close(self._own)
                return
            if number not in self._numbers:
                continue
            if first is None:
                first, patience = time.monotonic(), GRACE
            elif time.monotonic() - first > MOMENT and not self._heard():  # ignores the second of a pair sent at once
                time.sleep(MOMENT)
                if not self._heard():
                    os._exit(128 + number)


def _say(text: str) -> None:
    with suppress(OSError):  # stderr may be closed
        os.write(2 if sys.__stderr__ is None else sys.__stderr__.fileno(), text.encode())
