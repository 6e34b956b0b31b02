"""Roofline: peak arithmetic and memory bandwidth of a machine, and the fraction reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from velocirl.bench.machine.cost import Cost


@dataclass(frozen=True)
class Peak:
    """Best performance of `cores` cores, or of a GPU, in this run."""

    device: Literal["cpu", "cuda"]
    cores: int
    operations_per_second: float  # products of large float32 matrices
    bytes_per_second: float  # reading and writing arrays larger than any cache

    def __post_init__(self) -> None:
        if not (0.0 < self.operations_per_second < 1e30 and 0.0 < self.bytes_per_second < 1e30):
            raise ValueError(f"a peak is of positive numbers, got {self}")


@dataclass(frozen=True)
class Peaks:
    """All measured peaks: 1 core, all cores and, if there is one, a GPU."""

    all: Sequence[Peak]

    def of(self, cost: Cost) -> Peak | None:
        """Return the peak for a cost's device: on the CPU, for as many cores or the next higher number."""
        fitting = [peak for peak in self.all if peak.device == cost.device]
        enough = [peak for peak in fitting if peak.cores >= cost.cores]
        return min(enough, key=lambda peak: peak.cores, default=None)


@dataclass(frozen=True)
class Share:
    """Fraction of the machine's limit that was reached, and which limit applies: arithmetic or memory."""

    of_peak: float
    bound: Literal["arithmetic", "memory"]


def share_of_peak(cost: Cost, per_second: float, peaks: Peaks) -> Share | None:
    """Compute the minimum time of a unit of work over the time it took."""
    peak = peaks.of(cost)
    if peak is None or not (cost.operations or cost.bytes):
        return None
    arithmetic, memory = cost.operations / peak.operations_per_second, cost.bytes / peak.bytes_per_second
    return Share(per_second * max(arithmetic, memory), "arithmetic" if arithmetic >= memory else "memory")
