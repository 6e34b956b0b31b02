"""Terminal detection: whether a person sees what a stream writes.

Open MPI gives the standard output of every rank a pseudo-terminal of its own, whatever its own output is, such as the
pipe of `mpirun ... | tail`. In a rank the output of the launcher decides.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

RANK = "OMPI_COMM_WORLD_RANK"  # Open MPI sets it; other launchers give ranks pipes, or the terminal itself


# What ipykernel sets for the commands that a notebook starts as `!velocirl train`, which have a pseudo-terminal.
KERNEL, KERNEL_SETS = "JPY_PARENT_PID", {"TERM": "xterm-color", "PAGER": "cat", "GIT_PAGER": "cat"}


def started_by_notebook() -> bool:
    """Return whether a notebook started this command: it shows lines, and would show what moves as control codes."""
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
    except (AttributeError, OSError, ValueError):  # there is no stream, or it is closed
        return False


def in_terminal() -> bool:
    """Return whether a terminal shows what is printed."""
    return is_terminal(sys.stdout)


@cache
def _launcher_has_terminal(descriptor: int, device: int, inode: int) -> bool:
    """Return whether the launcher's stream is a terminal: that of the nearest ancestor whose stream is another file.

    False where the system does not say which files other processes have open (macOS).
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
