"""Animation of episodes in a terminal, at a fixed rate of steps per second."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from velocirl.training.actors.playing import Moment

if TYPE_CHECKING:
    from rich.console import Console

    from velocirl.monitor.screen import Screen

BEHIND = 0.5  # seconds of delay that later steps may make up for
GLANCE = 0.2  # seconds after which a frame is shown even if steps are late


class Pace:
    """Timer of steps at a fixed rate; frames are skipped when steps are late."""

    def __init__(self, fps: float | None) -> None:
        self._fps = fps  # None: the rate of each moment
        self._period = 0.0
        self._due = time.perf_counter()
        self._seen = 0.0

    def shows(self) -> bool:
        """Return whether the next frame is to be drawn."""
        now = time.perf_counter()
        if now > self._due + 2 * self._period and now < self._seen + GLANCE:
            return False
        self._seen = now
        return True

    def next(self, fps: float) -> float:
        """Return the time at which the next step is due."""
        self._period = 1.0 / (self._fps or fps)
        self._due = max(self._due + self._period, time.perf_counter() - BEHIND)
        return self._due

    def wait(self, fps: float) -> None:
        """Sleep until the next step is due."""
        time.sleep(max(0.0, self.next(fps) - time.perf_counter()))


@contextmanager
def open_screen(console: Console) -> Iterator[Screen]:
    """Open the screen of a console's terminal; other output meanwhile is printed afterward."""
    from velocirl.monitor.screen import Screen

    sys.stdout.flush()
    sys.stderr.flush()
    shared = [handle for handle in (1, 2) if os.isatty(handle)]
    own = {handle: os.dup(handle) for handle in shared}
    with (
        tempfile.TemporaryFile() as printed,
        os.fdopen(os.dup(console.file.fileno()), "w", encoding="utf-8") as terminal,
    ):
        try:
            for handle in shared:  # by descriptor, as C libraries print too
                os.dup2(printed.fileno(), handle)
            with Screen(terminal, truecolor=console.color_system == "truecolor") as screen:
                yield screen
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for handle, before in own.items():
                os.dup2(before, handle)
                os.close(before)
            printed.seek(0)
            terminal.write(printed.read().decode(errors="replace"))


def animate(console: Console, played: Any, pace: Pace) -> None:
    """Show moments as they come, and print how the episodes ended."""
    ended: list[str] = []
    try:
        with open_screen(console) as screen:
            for one in played:
                if one.ended:
                    ended.append(told(one))
                if one.picture is not None:
                    screen.show(one.picture, [told(one)])
                pace.wait(one.fps)
    finally:
        for line in ended:
            console.print(line, markup=False, soft_wrap=True)


def told(one: Moment) -> str:
    """Format the progress of an episode, or its end."""
    what = "over after" if one.ended else "step"
    steps = f"{one.step:,} steps" if one.ended else f"{one.step:,}"
    return f"episode {one.episode + 1}: {what} {steps}, return {one.total:,.6g}"
