"""Compile lock: among processes that need the same code at once, one compiles it and the others wait.

Workers and ranks start together, and each would compile everything. A claim is a locked file next to the cached file.
The lock ends with its process: if that process was killed, a waiting one does the work itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence

from velocirl.engine.disk.directories import open_cache_directory
from velocirl.engine.disk.files import UnsafePathError

PATIENCE = 60.0  # seconds after which code claimed by another process is compiled here as well
PAUSE = 0.02


@contextlib.contextmanager
def claimed(names: Sequence[str]) -> Iterator[set[str]]:
    """Claim files of the cache in this context; yields the names that no other process has claimed."""
    held: dict[str, int] = {}
    with _directory() as directory:
        try:
            for name in names:
                with contextlib.suppress(OSError):  # claimed by another process, or nothing can be written there
                    held[name] = _lock(name, directory, os.O_CREAT)
            yield set(held)
        finally:
            for name, handle in held.items():
                with contextlib.suppress(OSError):
                    os.unlink(_claim(name), dir_fd=directory)
                os.close(handle)


def wait_for(names: Sequence[str]) -> None:
    """Wait until no process claims these names."""
    until = time.monotonic() + PATIENCE
    with _directory() as directory:
        for name in names:
            while time.monotonic() < until:
                try:
                    os.close(_lock(name, directory))
                except BlockingIOError:
                    time.sleep(PAUSE)
                except OSError:  # it is gone
                    break
                else:
                    break


def _lock(name: str, directory: int | None, how: int = 0) -> int:
    if directory is None:
        raise FileNotFoundError(name)
    handle = os.open(_claim(name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o600, dir_fd=directory)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _claim(name: str) -> str:
    return f".{name}.claim"


@contextlib.contextmanager
def _directory() -> Iterator[int | None]:
    """Yield the descriptor of the cache's directory, or None if it cannot be used."""
    try:
        directory = open_cache_directory()
    except UnsafePathError:
        raise
    except OSError:  # reads and writes report the error
        yield None
        return
    try:
        yield directory
    finally:
        os.close(directory)
