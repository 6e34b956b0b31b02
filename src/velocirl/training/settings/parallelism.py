"""Parallelism of a training: shares of an update by its size, threads by the cores that are left for them."""

from __future__ import annotations

from velocirl.engine.targets.cores import available_cores
from velocirl.engine.targets.team import MAX_ITEMS
from velocirl.scale.launching import launch_of

SHARE_ROWS = 64  # rows of a share, at least: with fewer, weights are loaded for little
SHARE_WORK = 1_000_000  # rows times parameters of a share, at least: with less, handing it out costs more than it saves


def shares_for(rows: int, parameters: int, most: int = MAX_ITEMS) -> int:
    """Choose the number of shares for updates of so many rows; a power of two, the same on every machine."""
    wanted = min(rows // SHARE_ROWS, rows * parameters // SHARE_WORK, most, MAX_ITEMS)
    return 1 << max(wanted, 1).bit_length() - 1


def threads_for(runtime: str, others: int = 0) -> int:
    """Count the cores for each process of this machine, less `others` that collectors and workers keep busy."""
    return max(available_cores() // launch_of(runtime).local_size - others, 1)
