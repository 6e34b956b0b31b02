"""Console of training and commands, on a terminal and elsewhere."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from rich.console import Console
from rich.segment import Segment

from velocirl.monitor.terminal import is_terminal, started_by_notebook
from velocirl.monitor.words import printable

PIPE_WIDTH = 200  # wide enough not to wrap output that another program reads


class ShowingConsole(Console):
    """Console that prints control characters visibly instead of letting the terminal execute them.

    Names, values and texts may come from untrusted files. rich keeps its own terminal commands apart from text.
    """

    def on_broken_pipe(self) -> None:
        """End the command as any other closed pipe does."""
        self.quiet = True
        raise BrokenPipeError

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """Yield the segments to print."""
        for segment in super().render(*arguments, **options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                lines = map(printable, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)


class LastingStream:
    """Stream that discards output once its terminal is gone, as when a connection breaks.

    A run that ends for that reason still has to be saved, and one started with nohup continues.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, or discard it if the terminal is gone."""
        return self._try(lambda: self._stream.write(text)) or len(text)

    def flush(self) -> None:
        """Flush the stream, if the terminal still exists."""
        self._try(self._stream.flush)

    def isatty(self) -> bool:
        """Return whether a terminal shows the stream; for a rank, the launcher's terminal."""
        return is_terminal(self._stream)

    def _try(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())  # buffered output is written again at exit
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def make_console(*, stderr: bool = False) -> Console:
    """Create a console on stdout or stderr; it obeys NO_COLOR, and without a terminal lines are plain."""
    stream: Any = LastingStream(sys.stderr if stderr else sys.stdout)
    # FORCE_COLOR, which notebooks set, would make rich treat their pseudo-terminal as one that obeys control codes.
    force = False if started_by_notebook() else None
    console = ShowingConsole(file=stream, highlight=False, force_terminal=force)
    if console.is_terminal:
        return console
    return ShowingConsole(file=stream, highlight=False, width=PIPE_WIDTH, force_terminal=False)


def shows_pictures(console: Console) -> bool:
    """Return whether a console can show images made of colored half blocks."""
    colorful = console.color_system in ("256", "truecolor") and not console.no_color
    return console.is_terminal and not console.is_dumb_terminal and colorful and not console.options.ascii_only
