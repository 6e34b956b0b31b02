"""Where the processes of one training meet: sums over all of them, and which part of the copies is whose.

A learner is handed a `Reducer` and knows nothing of what carries it: MPI, torch.distributed, or nothing at all.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray


class Reducer(Protocol):
    """The processes that train one agent, as one of them sees the others."""

    rank: int
    size: int

    def sum(self, array: NDArray[Any]) -> None:
        """Add up an array of floats that lies in one piece, element by element, over all processes, in its place.

        All processes get the same bits.
        """
        ...


class Alone:
    """A process that trains by itself."""

    rank, size = 0, 1

    def sum(self, array: NDArray[Any]) -> None:
        """There is nobody to add."""


ALONE = Alone()
Share = tuple[int, int]  # of things that are numbered: the first, and the one after the last


class Part(NamedTuple):
    """The part of all copies that one process has, and who has the others."""

    first: int  # the number of its first copy
    copies: int  # how many it has
    shares: list[Share]  # of each of its threads, counted from its first copy
    first_thread: int  # the number of its first thread among those of all processes
    all_copies: list[int]  # of each thread of all processes


def shares_of(count: int, parts: int) -> list[Share]:
    """Cut so many things into equal shares, of which the last may be smaller; none is empty, so there may be fewer."""
    share = -(-count // parts)
    return [(first, min(first + share, count)) for first in range(0, count, share)]


def parts_of(copies: int, threads: int, size: int) -> list[Part]:
    """The parts of so many processes with so many threads each.

    Processes of one thread have what the threads of one process would have.
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
    """The part of one of them."""
    return parts_of(copies, threads, reducer.size)[reducer.rank]
