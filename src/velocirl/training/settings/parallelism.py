"""Parallelism of a training: shares by the size of an update, threads by the available cores."""

from __future__ import annotations

from typing import Any

from velocirl.engine.targets.cores import available_cores
from velocirl.engine.targets.team import MAX_ITEMS
from velocirl.scale.launching import launch_of

SHARE_ROWS = 32  # minimum rows of a share: with fewer, loading the weights dominates
SHARE_WORK = 50_000  # minimum rows times parameters of a share: with less, claiming it costs more than it saves
FREE_ROWS = 256  # rows of a share whose overhead is negligible: with many shares, a slow thread delays few
FREE_NUMBERS = 2**24  # maximum gradient entries of all shares, if there are more shares than cores


def shares_for(rows: int, parameters: int, cores: int) -> int:
    """Choose the number of shares for updates of `rows` rows: a power of two.

    Small updates have at most one share per core. Large ones have many more, the same number on every machine.
    """
    by_rows = max(rows // SHARE_ROWS, min(2 * rows // SHARE_ROWS, 2))
    small = min(by_rows, rows * parameters // SHARE_WORK, 1 << (cores - 1).bit_length())
    large = min(rows // FREE_ROWS, FREE_NUMBERS // max(parameters, 1))
    return 1 << max(min(max(small, large), MAX_ITEMS), 1).bit_length() - 1


def cores_of(runtime: str) -> int:
    """Return the number of cores for each process of a training on this machine."""
    return max(available_cores() // launch_of(runtime).local_size, 1)


def threads_for(config: Any) -> int:
    """Return the number of cores for threads: all, minus the processes that step environments while updates run."""
    workers = getattr(config, "workers", None) or 0
    at_once = (getattr(config, "collectors", None) or 0) + (workers if getattr(config, "overlap", False) else 0)
    return max(cores_of(config.runtime) - at_once, 1)
