"""A process of its own for each hostile file, under a limit of memory and time."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

MEMORY = 2**30  # bytes that a file may take beyond what the process had before
SECONDS = 60.0  # that a file may take


def in_child(work: Callable[[], str], memory: int = MEMORY) -> str:
    """The word that `work` gives in a fork of this process, or what went wrong there."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        result = "raised nothing that anybody expects"
        with contextlib.suppress(BaseException):
            _limit(memory)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            warnings.simplefilter("ignore")
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
                result = f"raised {type(error).__name__}: {error}"[:300]
            os.write(write, result.encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:  # noqa: PTH123 - a descriptor
        said = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "hung" if number == signal.SIGALRM else f"crashed with {signal.Signals(number).name}"
    return said.decode() or "ended without an answer"


def _limit(memory: int) -> None:
    """No more memory than a bound beyond what there is, and an alarm that nothing catches."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
