"""Memory limits for settings: settings from a file may request little more memory than the file's own size.

A file of a few kilobytes may declare a network with a million times a million parameters. Code that is about to
allocate memory for a setting claims it first. A claim that is too large raises before anything is allocated or
computed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

TIMES, BOUND = 4, 2**24  # loading a file takes at most TIMES its bytes plus BOUND bytes at once
DENSEST = 32  # maximum ratio of a compressed file's size in memory to its bytes, for sizes above WORTH_ASKING
WORTH_ASKING = 2**28  # bytes from which a claim is compared with the machine's memory

_size: ContextVar[int | None] = ContextVar("size of the file that is loaded", default=None)


class AllowanceError(MemoryError):
    """The machine has too little memory for a setting; nothing was allocated."""


@contextmanager
def loading(size: int) -> Iterator[None]:
    """Declare that settings in this context come from a file of `size` bytes."""
    token = _size.set(size)
    try:
        yield
    finally:
        _size.reset(token)


def is_loading() -> bool:
    """Return whether settings currently come from a file."""
    return _size.get() is not None


def claim(size: int, what: str) -> None:
    """Raise, by name, if `size` bytes are out of proportion to the loaded file or exceed the machine's memory."""
    held = _size.get()
    if held is not None and size > TIMES * held + BOUND:
        raise ValueError(
            f"{what} would take {size:,} bytes, and what is loaded has {held:,}: its settings do not fit its arrays"
        )
    if size > WORTH_ASKING and size > (most := memory_of_machine()):
        raise AllowanceError(
            f"{what} would take {size / 2**30:,.1f} GiB, and this machine has {most / 2**30:,.1f} GiB: reduce it"
        )


def claim_unpacked(size: int, stored: int, what: str) -> None:
    """Raise if `size` unpacked bytes are out of proportion to `stored`: only a malicious file has such a ratio."""
    if size > max(DENSEST * stored, WORTH_ASKING):
        raise ValueError(
            f"{what} would take {size:,} bytes unpacked, more than {DENSEST} times the {stored:,} bytes of the file"
        )
    claim(size, what)


def memory_of_machine() -> int:
    """Return the total bytes of memory available to this process."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):  # of a container
        try:
            with open(name, encoding="ascii") as file:  # noqa: PTH123
                limit = file.read().strip()
        except OSError:
            continue
        if limit.isdigit():
            whole = min(whole, int(limit))
    return whole
