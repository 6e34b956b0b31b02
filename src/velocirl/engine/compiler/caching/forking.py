"""Parallel work in forks of this process, which share its memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

PATIENCE = 60.0  # seconds that forks may still take when this process has nothing left to do
_NUMBER = struct.Struct("H")  # format of a work item in the queue
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def share_out(work: Callable[[int], bytes], count: int, processes: int) -> list[bytes]:
    """Return `work(k)` for every k below `count`; each process takes the next k when it has finished one.

    Work that a fork fails to do, for any reason, is repeated by this process, so that its error is raised here.
    """
    processes = min(processes, count) if can_fork() else 1
    done: dict[int, bytes] = {}
    if processes > 1:
        queue, end = os.pipe()
        os.write(end, b"".join(_NUMBER.pack(k) for k in range(count)))
        os.close(end)
        with tempfile.TemporaryDirectory(prefix="velocirl-") as folder:
            forks: list[int] = []
            try:
                forks += [_fork(work, queue, Path(folder)) for _ in range(processes - 1)]
                while (k := _next(queue)) is not None:
                    done[k] = work(k)
                _wait(forks)
            finally:
                _end(forks)
                os.close(queue)
            for path in Path(folder).iterdir():
                if path.name.isdecimal():
                    done[int(path.name)] = path.read_bytes()
    return [done[k] if k in done else work(k) for k in range(count)]


def can_fork() -> bool:
    """Return whether a fork is cheap and safe: other systems' frameworks break in one, and so may MPI."""
    return sys.platform == "linux" and "mpi4py.MPI" not in sys.modules


def _fork(work: Callable[[int], bytes], queue: int, folder: Path) -> int:
    with warnings.catch_warnings():  # a fork of a process with threads is safe if it only calls `work`
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process:
        return process
    try:  # nothing below may return to the caller, nor write what this process has buffered
        gc.disable()  # garbage of this process may be on a GPU, which a fork must not touch
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored in background jobs of a shell
                signal.signal(number, signal.SIG_DFL)
        while (k := _next(queue)) is not None:
            unfinished = folder / f"{k}.unfinished"
            unfinished.write_bytes(work(k))
            unfinished.rename(folder / str(k))
    finally:
        os._exit(0)


def _next(queue: int) -> int | None:
    word = os.read(queue, _NUMBER.size)
    return _NUMBER.unpack(word)[0] if word else None


def _wait(forks: list[int]) -> None:
    """Wait for forks, and remove those that have ended from the list."""
    until = time.monotonic() + PATIENCE
    while forks and time.monotonic() < until:
        for process in list(forks):
            if os.waitpid(process, os.WNOHANG)[0]:
                forks.remove(process)
        time.sleep(0.005)


def _end(forks: list[int]) -> None:
    for process in forks:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
