"""Model of training on many ranks: computing time per iteration, and the time of all-reductions.

A sum of B bytes over n ranks is m messages, one after the other, and b bytes through the slowest connection:

    seconds = m * latency + b * seconds_per_byte

    ring (gloo):   m = 2 (n - 1),      b = 2 (n - 1) / n * B
    doubling:      m = ceil(log2 n),   b = ceil(log2 n) * B
    quickest (MPI, which chooses by size): the faster of the two

Latency and seconds_per_byte are fitted to measured sums. An iteration of a fixed global batch takes
`fixed + shared / n` seconds of computing and the time of its sums. The model leaves out the wait for the slowest rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

PATTERNS = {"torch": "ring", "mpi": "quickest"}  # by runtime


@dataclass(frozen=True)
class Measured:
    """Measured time of an all-reduce."""

    ranks: int
    size: int  # bytes
    seconds: float


@dataclass(frozen=True)
class Link:
    """Connection that carries sums between ranks."""

    pattern: str
    latency: float  # seconds of a message
    seconds_per_byte: float

    def sum_seconds(self, ranks: int, size: int) -> float:
        """Return the seconds of a sum of `size` bytes."""
        return min(
            messages * self.latency + carried * self.seconds_per_byte
            for messages, carried in _terms(self.pattern, ranks, size)
        )


@dataclass(frozen=True)
class Work:
    """Iteration of an algorithm: its computing time, and its sums over the ranks."""

    name: str
    fixed: float  # seconds that every rank computes, however many there are
    shared: float  # seconds that are divided by the number of ranks
    sums: Mapping[int, float]  # number of sums by size in bytes

    def computing(self, ranks: int) -> float:
        """Return the seconds that a rank computes."""
        return self.fixed + self.shared / ranks

    def summing(self, link: Link, ranks: int) -> float:
        """Return the seconds that ranks spend in sums."""
        return sum(count * link.sum_seconds(ranks, size) for size, count in self.sums.items()) if ranks > 1 else 0.0

    def seconds(self, link: Link, ranks: int) -> float:
        """Return the seconds of an iteration."""
        return self.computing(ranks) + self.summing(link, ranks)

    def share(self, link: Link, ranks: int) -> float:
        """Return the fraction of an iteration that is spent in sums."""
        return self.summing(link, ranks) / self.seconds(link, ranks)

    def speedup(self, link: Link, ranks: int) -> float:
        """Return the speedup of `ranks` ranks over one."""
        return self.computing(1) / self.seconds(link, ranks)

    def grown(self, factor: float) -> Work:
        """Return the work with a batch `factor` times as large."""
        return Work(self.name, self.fixed, factor * self.shared, self.sums)


def fit_link(pattern: str, measured: Iterable[Measured]) -> Link:
    """Fit a link to measured sums, by least squares of relative errors, so that all sizes count."""
    points = list(measured)
    link = Link(pattern, 0.0, 0.0)
    for _ in range(10):  # the fastest of several patterns depends on the fit
        rows = [_taken(link, point) for point in points]
        weighted = np.array(rows) / np.array([[point.seconds] for point in points])
        latency, per_byte = np.linalg.lstsq(weighted, np.ones(len(points)), rcond=None)[0]
        if latency < 0 or per_byte < 0:  # one of the two explains all of the time
            column = 1 if latency < 0 else 0
            alone = float(weighted[:, column].sum() / (weighted[:, column] ** 2).sum())
            latency, per_byte = (0.0, alone) if column else (alone, 0.0)
        found = Link(pattern, float(latency), float(per_byte))
        if found == link:
            break
        link = found
    return link


def fit_work(name: str, computed: Mapping[int, float], sums: Mapping[int, float]) -> Work:
    """Fit the work to the seconds that a rank computes, `computed` for two numbers of ranks."""
    (few, long), (many, short) = sorted(computed.items())
    shared = max((long - short) / (1 / few - 1 / many), 0.0)
    return Work(name, max(long - shared / few, 0.0), min(shared, few * long), sums)


def _terms(pattern: str, ranks: int, size: int) -> list[tuple[float, float]]:
    """Return the messages and bytes of each way to compute a sum."""
    doublings = int(np.ceil(np.log2(ranks)))
    ways = {
        "ring": (2.0 * (ranks - 1), 2.0 * (ranks - 1) / ranks * size),
        "doubling": (float(doublings), float(doublings * size)),
    }
    return list(ways.values()) if pattern == "quickest" else [ways[pattern]]


def _taken(link: Link, point: Measured) -> tuple[float, float]:
    """Return the messages and bytes of the way that is fastest on a link."""
    terms = _terms(link.pattern, point.ranks, point.size)
    return min(terms, key=lambda one: one[0] * link.latency + one[1] * link.seconds_per_byte)
