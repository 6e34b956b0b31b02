"""Terminal detection: whether a user sees the output of a stream.

Open MPI gives the standard output of every rank its own pseudo-terminal, even if its own output is a pipe, as in
`mpirun ... | tail`. For a rank, the launcher's output decides.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

RANK = "OMPI_COMM_WORLD_RANK"  # set by Open MPI; other launchers give ranks pipes, or the terminal itself


# Variables that ipykernel sets for commands started as `!velocirl train`, which have a pseudo-terminal.
KERNEL, KERNEL_SETS = "JPY_PARENT_PID", {"TERM": "xterm-color", "PAGER": "cat", "GIT_PAGER": "cat"}


def started_by_notebook() -> bool:
    """Return whether a notebook started this command: it shows lines, but prints control codes as text."""
    return KERNEL in os.environ or all(os.environ.get(name) == value for name, value in KERNEL_SETS.items())


def is_terminal(stream: Any) -> bool:
    """Return whether `stream` writes to a terminal; for a rank of Open MPI, whether the launcher does."""
    try:
        if not stream.isatty() or started_by_notebook():
            return False
        if RANK not in os.environ:
            return True
        status = os.fstat(stream.fileno())
        return _launcher_has_terminal(stream.fileno(), status.st_dev, status.st_ino)
    except (AttributeError, OSError, ValueError):  # the stream is missing or closed
        return False


def in_terminal() -> bool:
    """Return whether stdout is shown in a terminal."""
    return is_terminal(sys.stdout)


@cache
def _launcher_has_terminal(descriptor: int, device: int, inode: int) -> bool:
    """Return whether the launcher's stream is a terminal; the launcher is the nearest ancestor with a different stream.

    Returns False where the files of other processes cannot be read (macOS).
    """
    import psutil

    for process in psutil.Process().parents():
        path = f"/proc/{process.pid}/fd/{descriptor}"
        try:
            theirs = Path(path).stat()
            if (theirs.st_dev, theirs.st_ino) == (device, inode):  # a shell between the launcher and this process
                continue
            opened = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return os.isatty(opened)
        finally:
            os.close(opened)
    return False
