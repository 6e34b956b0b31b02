"""All-reduce over the processes of one training run, and the assignment of environments to processes.

A learner receives a `Reducer` and does not depend on its transport: MPI, torch.distributed, or none.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray


class Reducer(Protocol):
    """Group of processes that train one agent, as seen by one of them."""

    rank: int
    size: int

    def sum(self, array: NDArray[Any]) -> None:
        """All-reduce: sum a contiguous array of floats element by element over all processes, in place.

        All processes get the same bits.
        """
        ...


class Alone:
    """Reducer of a single process."""

    rank, size = 0, 1

    def sum(self, array: NDArray[Any]) -> None:
        """Do nothing: there is only one process."""


ALONE = Alone()
Share = tuple[int, int]  # range of numbered items: first, and one past the last


class Part(NamedTuple):
    """One process's part of the environments, and the parts of the other processes."""

    first: int  # the number of its first environment
    copies: int  # its number of environments
    shares: list[Share]  # range of each of its threads, relative to its first environment
    first_thread: int  # the number of its first thread among the threads of all processes
    all_copies: list[int]  # number of environments of each thread of all processes


def shares_of(count: int, parts: int) -> list[Share]:
    """Split `count` items into at most `parts` ranges of equal size; the last may be smaller, and none is empty."""
    share = -(-count // parts)
    return [(first, min(first + share, count)) for first in range(0, count, share)]


def parts_of(copies: int, threads: int, size: int) -> list[Part]:
    """Return the parts of `size` processes with `threads` threads each.

    Processes with one thread get the ranges that the threads of a single process would get.
    """
    ranges = shares_of(copies, size)
    shares = [shares_of(stop - first, threads) for first, stop in ranges]
    all_copies = [stop - first for some in shares for first, stop in some]
    before = [sum(map(len, shares[:rank])) for rank in range(len(shares))]
    return [
        Part(first, stop - first, own, others, all_copies)
        for (first, stop), own, others in zip(ranges, shares, before, strict=True)
    ]


def part_of(copies: int, threads: int, reducer: Reducer) -> Part:
    """Return the part of the reducer's process."""
    return parts_of(copies, threads, reducer.size)[reducer.rank]
