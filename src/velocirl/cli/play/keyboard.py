"""Keys of a terminal, read as they are pressed."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any, TextIO

END, ENTER, SPACE, ERASE = "end", "enter", "space", "erase"
LEFT, RIGHT, UP, DOWN = "left", "right", "up", "down"
ARROWS = {b"A": UP, b"B": DOWN, b"C": RIGHT, b"D": LEFT}
NAMED = {b"\x04": END, b"\r": ENTER, b"\n": ENTER, b" ": SPACE, b"\x7f": ERASE, b"\b": ERASE}
ESCAPE = b"\x1b"
FOLLOWS = 0.05  # seconds to wait for the rest of an arrow key's bytes before Escape counts as pressed


class Keyboard:
    """Terminal whose keys are read one by one without echo; its settings are restored afterward."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._handle = (stream or sys.stdin).fileno()
        self._before: Any = None
        self._held = b""

    def __enter__(self) -> Keyboard:
        import termios
        import tty

        self._before = termios.tcgetattr(self._handle)
        tty.setcbreak(self._handle)
        changed = termios.tcgetattr(self._handle)
        changed[6][termios.VSUSP] = b"\0"  # Ctrl-Z would leave the shell behind the animation
        termios.tcsetattr(self._handle, termios.TCSANOW, changed)
        return self

    def __exit__(self, *_: object) -> None:
        import termios

        termios.tcsetattr(self._handle, termios.TCSAFLUSH, self._before)

    def read(self, until: float | None = None) -> str | None:
        """Return the next key: a lower-case character or a name; None if none is pressed before `until`."""
        while True:
            if self._held:
                key = self._take()
                if key is not None:
                    return key
                continue
            if not self._more(until):
                return None

    def _more(self, until: float | None) -> bool:
        """Wait for bytes until a time of `time.perf_counter`; the end of input counts as the key that ends the game."""
        left = None if until is None else max(0.0, until - time.perf_counter())
        if not select.select([self._handle], [], [], left)[0]:
            return False
        self._held += os.read(self._handle, 1024) or b"\x04"
        return True

    def _take(self) -> str | None:
        """Decode a key from the bytes; None for a key without a meaning."""
        first = self._held[:1]
        if first == ESCAPE:
            return self._take_escape()
        size = next((length for length, lead in ((4, 0xF0), (3, 0xE0), (2, 0xC0)) if first[0] >= lead), 1)
        key, self._held = self._held[:size], self._held[size:]
        if key in NAMED:
            return NAMED[key]
        text = key.decode(errors="ignore").lower()
        return text if text.isprintable() and text else None

    def _take_escape(self) -> str | None:
        """Decode Escape, or the key encoded by an escape sequence."""
        if len(self._held) == 1 and not self._more(time.perf_counter() + FOLLOWS):
            self._held = b""
            return END
        if self._held[1:2] not in (b"[", b"O"):
            self._held = self._held[1:]
            return END
        end = 2
        while True:
            if end >= len(self._held) and not self._more(time.perf_counter() + FOLLOWS):
                self._held = b""
                return None
            final, end = self._held[end : end + 1], end + 1
            if b"@" <= final <= b"~":
                break
        sequence, self._held = self._held[:end], self._held[end:]
        return ARROWS.get(final) if len(sequence) == 3 else None
