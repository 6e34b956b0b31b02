"""Which process compiles what, where several that have just begun need the same: one does, the others wait for it.

Workers and ranks start together, and would each compile all there is. A claim is a locked file beside what it is for;
the lock goes with its process, so that whoever waits for one that was killed does the work itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence

from velocirl.engine.disk.directories import open_cache_directory
from velocirl.engine.disk.files import UnsafePathError

PATIENCE = 60.0  # seconds after which what another process has claimed is compiled here as well
PAUSE = 0.02


@contextlib.contextmanager
def claimed(names: Sequence[str]) -> Iterator[set[str]]:
    """Claim files of the cache as long as this lasts; gives those that no other process has claimed."""
    held: dict[str, int] = {}
    with _directory() as directory:
        try:
            for name in names:
                with contextlib.suppress(OSError):  # of another process, or nothing can be written there
                    held[name] = _lock(name, directory, os.O_CREAT)
            yield set(held)
        finally:
            for name, handle in held.items():
                with contextlib.suppress(OSError):
                    os.unlink(_claim(name), dir_fd=directory)
                os.close(handle)


def wait_for(names: Sequence[str]) -> None:
    """Wait until nobody claims these any more."""
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
    """The directory of the cache, if there is one."""
    try:
        directory = open_cache_directory()
    except UnsafePathError:
        raise
    except OSError:  # whoever reads or writes there says so
        yield None
        return
    try:
        yield directory
    finally:
        os.close(directory)
