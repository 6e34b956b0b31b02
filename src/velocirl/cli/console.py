"""The console that commands print to, on a terminal and elsewhere."""

from __future__ import annotations

from rich.console import Console

PIPE_WIDTH = 200  # what another program reads is not wrapped at the width of a terminal that is not there


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr; NO_COLOR is obeyed, and without a terminal lines are plain."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=PIPE_WIDTH)
