"""Parallelism of a training: shares of an update by its size, threads by the cores that are left for them."""

from __future__ import annotations

from typing import Any

from velocirl.engine.targets.cores import available_cores
from velocirl.engine.targets.team import MAX_ITEMS
from velocirl.scale.launching import launch_of

SHARE_ROWS = 32  # rows of a share, at least: with fewer, weights are loaded for little
SHARE_WORK = 50_000  # rows times parameters of a share, at least: with less, claiming it costs more than it saves
FREE_ROWS = 256  # rows from which on a share costs nothing: so many shares that a slow thread delays few of them
FREE_NUMBERS = 2**24  # gradients of all shares together, at most, where there are more shares than cores


def shares_for(rows: int, parameters: int, cores: int) -> int:
    """Choose the number of shares for updates of `rows` rows: a power of two.

    Small updates have at most a share for each core. Large ones have many more, the same on every machine.
    """
    by_rows = max(rows // SHARE_ROWS, min(2 * rows // SHARE_ROWS, 2))
    small = min(by_rows, rows * parameters // SHARE_WORK, 1 << (cores - 1).bit_length())
    large = min(rows // FREE_ROWS, FREE_NUMBERS // max(parameters, 1))
    return 1 << max(min(max(small, large), MAX_ITEMS), 1).bit_length() - 1


def cores_of(runtime: str) -> int:
    """Count the cores for each process of a training on this machine."""
    return max(available_cores() // launch_of(runtime).local_size, 1)


def threads_for(config: Any) -> int:
    """Count the cores for threads: all, less those of processes that step environments while updates run."""
    workers = getattr(config, "workers", None) or 0
    at_once = (getattr(config, "collectors", None) or 0) + (workers if getattr(config, "overlap", False) else 0)
    return max(cores_of(config.runtime) - at_once, 1)
