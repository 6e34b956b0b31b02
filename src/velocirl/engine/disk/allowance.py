"""How much memory settings may ask for: where they come from a file, little more than the file itself has.

A file of a few kilobytes may say that its network has a million times a million parameters. Whoever is about to take
memory for what a setting says claims it first; nothing is taken, and nothing is computed, where that is too much.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

TIMES, BOUND = 4, 2**24  # loading a file takes at most so many times its bytes at once, and 16 MiB more
DENSEST = 32  # times its bytes that a compressed file may take in memory, where that is more than WORTH_ASKING
WORTH_ASKING = 2**28  # bytes from which a claim is compared with what the machine has

_size: ContextVar[int | None] = ContextVar("size of the file that is loaded", default=None)


class AllowanceError(MemoryError):
    """The machine has too little memory for what a setting says; nothing was taken."""


@contextmanager
def loading(size: int) -> Iterator[None]:
    """Within this, settings come from a file of so many bytes."""
    token = _size.set(size)
    try:
        yield
    finally:
        _size.reset(token)


def is_loading() -> bool:
    """Return whether settings come from a file now."""
    return _size.get() is not None


def claim(size: int, what: str) -> None:
    """Refuse to take so many bytes, by name, where a file does not account for them or the machine has not as many."""
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
    """Refuse to unpack so many bytes from a file of `stored`, where only a file made for that would have them."""
    if size > max(DENSEST * stored, WORTH_ASKING):
        raise ValueError(
            f"{what} would take {size:,} bytes unpacked, more than {DENSEST} times the {stored:,} bytes of the file"
        )
    claim(size, what)


def memory_of_machine() -> int:
    """The bytes of memory that this process can ever have."""
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
