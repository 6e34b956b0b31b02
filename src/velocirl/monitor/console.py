"""The console that training and commands print to, on a terminal and elsewhere."""

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

PIPE_WIDTH = 200  # what another program reads is not wrapped at the width of a terminal that is not there


class ShowingConsole(Console):
    """A console that shows control characters, in whatever it prints, where a terminal would obey them.

    Names, figures and texts come from files of anybody's; rich keeps its own commands to the terminal apart from text.
    """

    def on_broken_pipe(self) -> None:
        """Let the command end as of any other closed pipe."""
        self.quiet = True
        raise BrokenPipeError

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """The pieces of what is printed."""
        for segment in super().render(*arguments, **options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                lines = map(printable, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)


class LastingStream:
    """A stream whose terminal may go away, as when a connection breaks; then what is written goes nowhere.

    A run that ends for that reason still has to be saved, and one that was started with nohup goes on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, if somebody is there."""
        return self._try(lambda: self._stream.write(text)) or len(text)

    def flush(self) -> None:
        """Let it be seen."""
        self._try(self._stream.flush)

    def isatty(self) -> bool:
        """Return whether a terminal shows it: of a rank, the launcher's."""
        return is_terminal(self._stream)

    def _try(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())  # what is left in buffers is written at the end once more
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr; NO_COLOR is obeyed, and without a terminal lines are plain."""
    stream: Any = LastingStream(sys.stderr if stderr else sys.stdout)
    # FORCE_COLOR, which notebooks set, would make rich take their pseudo-terminal for one that obeys control codes.
    force = False if started_by_notebook() else None
    console = ShowingConsole(file=stream, highlight=False, force_terminal=force)
    if console.is_terminal:
        return console
    return ShowingConsole(file=stream, highlight=False, width=PIPE_WIDTH, force_terminal=False)


def shows_pictures(console: Console) -> bool:
    """Whether a console can show pictures of coloured half blocks."""
    colorful = console.color_system in ("256", "truecolor") and not console.no_color
    return console.is_terminal and not console.is_dumb_terminal and colorful and not console.options.ascii_only
