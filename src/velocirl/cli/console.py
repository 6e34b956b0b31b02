"""The console that commands print to, on a terminal and elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from velocirl.monitor.words import printable

PIPE_WIDTH = 200  # what another program reads is not wrapped at the width of a terminal that is not there


class ShowingConsole(Console):
    """A console that shows control characters, in whatever it prints, where a terminal would obey them.

    Names, figures and texts come from files of anybody's; rich keeps its own commands to the terminal apart from text.
    """

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        """The pieces of what is printed."""
        for segment in super().render(*arguments, **options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                lines = map(printable, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr; NO_COLOR is obeyed, and without a terminal lines are plain."""
    console = ShowingConsole(stderr=stderr, highlight=False)
    return console if console.is_terminal else ShowingConsole(stderr=stderr, highlight=False, width=PIPE_WIDTH)
