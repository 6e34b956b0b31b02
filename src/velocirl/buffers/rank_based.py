"""Rank-based prioritized replay (Schaul et al., 2016): the order of the errors counts, not their size.

P(i) = rank(i)^-alpha / sum_k k^-alpha

The ranks are those of a binary heap, which has the largest error first and is nearly sorted. As in the paper, it is
fully sorted from time to time.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.prioritised import checked, fault, fraction
from velocirl.buffers.replay import FILLED, TOTAL, ReplayBuffer, Selection, copy_all


class Heap(NamedTuple):
    """Heap of record indices by priority: no priority exceeds its parent's, at half its rank."""

    places: NDArray[np.int64]  # (capacity,) by rank, from 0
    ranks: NDArray[np.int64]  # (capacity,) by place
    priorities: NDArray[np.float32]  # (capacity,) by place


class Ranks(NamedTuple):
    """State of rank-based sampling."""

    heap: Heap
    shares: NDArray[np.float64]  # (capacity + 1,) sums of rank^-alpha before each rank
    greatest: NDArray[np.float32]  # (1,) largest priority so far
    revised: NDArray[np.int64]  # (1,) priorities that changed since the heap was last sorted
    alpha: float


def stand(heap, place, rank):
    """Assign a rank to a record's index."""
    heap.places[rank] = place
    heap.ranks[place] = rank


def reorder(heap, place, filled):
    """Restore the heap's order after the priority of an index has changed."""
    rank, priority = heap.ranks[place], heap.priorities[place]
    while rank > 0 and heap.priorities[heap.places[(rank - 1) // 2]] < priority:
        stand(heap, heap.places[(rank - 1) // 2], rank)
        rank = (rank - 1) // 2
    child = 2 * rank + 1
    while child < filled:
        if child + 1 < filled and heap.priorities[heap.places[child]] < heap.priorities[heap.places[child + 1]]:
            child += 1
        if heap.priorities[heap.places[child]] <= priority:
            break
        stand(heap, heap.places[child], rank)
        rank = child
        child = 2 * rank + 1
    stand(heap, place, rank)


def enter_all(heap, first, count, before, priority):
    """Set the priority of `count` indices of the ring from `first` on; those from `before` on are new in the heap."""
    capacity, filled = len(heap.places), before
    for i in range(count):
        place = (first + i) % capacity
        heap.priorities[place] = priority
        if place >= before:
            stand(heap, place, filled)
            filled += 1
        reorder(heap, place, filled)


def revise_ranks(heap, places, priorities, greatest, filled):
    """Set new priorities. Returns the first invalid index or -1; if one is invalid, nothing changes."""
    for i in range(len(places)):
        if not abs(priorities[i]) < inf or places[i] < 0 or places[i] >= filled:
            return i
    for i in range(len(places)):
        heap.priorities[places[i]] = abs(priorities[i])
        greatest[0] = max(greatest[0], abs(priorities[i]))
        reorder(heap, places[i], filled)
    return -1


def enter_ranks(book, counts, first, count):
    """Enter new records with the largest priority so far; the counts are already updated."""
    # The heap has an entry for each record before these; in a full ring they replace old ones.
    before = min(counts[TOTAL] - count, np.int64(len(book.heap.places)))
    enter_all(book.heap, first, count, before, book.greatest[0])
    book.revised[0] += count


def draw_ranks(book, counts, rng, beta, places, weights):
    """Sample one index from each of `len(places)` equal shares of the total, with its weight."""
    rank_out(book.heap, book.shares, counts[FILLED], rng, book.alpha * beta, places, weights)


def revise_by_rank(book, counts, places, errors):
    """Set the priorities of indices to these errors, all of them finite."""
    revise_ranks(book.heap, places, errors, book.greatest, counts[FILLED])
    book.revised[0] += len(places)


def rank_out(heap, shares, filled, rng, exponent, places, weights):
    """Sample one index from each of `len(places)` equal shares of the total, with its weight."""
    share = shares[filled] / np.float64(len(places))
    last = np.int64(0)
    for i in range(len(places)):
        last = rank_of(shares, filled, (np.float64(i) + fraction(rng)) * share)
        places[i] = last
    for i in range(len(places)):  # the last was sampled from the smallest shares, so its weight is the largest
        weights[i] = (np.float64(places[i] + 1) / np.float64(last + 1)) ** exponent
        places[i] = heap.places[places[i]]


def draw_by_rank(rows, heap, shares, filled, rng, exponent, places, weights, drawn):
    """Sample indices by rank with their weights, and copy the records."""
    rank_out(heap, shares, filled, rng, exponent, places, weights)
    copy_all(rows, places, drawn)


def rank_of(shares, filled, mass):
    """Return the rank in whose share `mass` falls; `shares` are the sums of all shares before a rank."""
    low, high = np.int64(0), filled - 1
    while low < high:
        middle = (low + high + 1) // 2
        if shares[middle] <= mass:
            low = middle
        else:
            high = middle - 1
    return low


class RankReplayBuffer(ReplayBuffer):
    """Replay buffer of the newest `capacity` transitions, sampled by the rank of their errors.

    New transitions have the largest priority so far.
    """

    def __init__(
        self, capacity: int, dtype: np.dtype[Any], seed: int, alpha: float = 0.7, path: Path | None = None
    ) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be between 0 and 1, not {alpha!r}")
        super().__init__(capacity, dtype, seed, path)
        self.alpha = float(alpha)
        self.heap = Heap(np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.zeros(capacity, np.float32))
        self.greatest = np.ones(1, np.float32)  # largest priority so far
        self._revised = np.zeros(1, np.int64)  # priorities changed since the heap was last sorted
        self._shares = np.append(0.0, np.cumsum(np.arange(1, capacity + 1, dtype=np.float64) ** -self.alpha))
        self._weights: dict[int, NDArray[np.float32]] = {}
        places, single, record = np.zeros(1, np.int64), np.zeros(1, np.float32), np.zeros(1, self._plain)
        self._enter = self._compile(enter_all, self.heap, 0, 0, 0, np.float32(1))
        self._revise = self._compile(revise_ranks, self.heap, places, single, self.greatest, 0)
        self._draw_by_rank = self._compile(
            draw_by_rank, self._plain_rows, self.heap, self._shares, 0, self.rng, 1.0, places, single, record
        )

    def add(self, transitions: NDArray[Any]) -> None:
        """Append a batch of records in order, with the largest priority so far, overwriting the oldest."""
        before = len(self)
        first, count = self._append(transitions)
        self._enter(self.heap, first, count, before, self.greatest[0])
        self._count(count)

    def sample(self, count: int, beta: float) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float32]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sample records. Returns them, their indices for `update`, and weights with a maximum of 1."""
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must be between 0 and 1, not {beta!r}")
        drawn, places, plain = self._batch(count)
        weights = self._weights.get(count)
        if weights is None:
            weights = self._weights[count] = np.zeros(count, np.float32)
        self._draw_by_rank(
            self._plain_rows, self.heap, self._shares, len(self), self.rng, self.alpha * beta, places, weights, plain
        )
        return drawn, places, weights

    def update(self, places: NDArray[np.int64], priorities: NDArray[np.float32]) -> None:
        """Set new priorities at indices returned by `sample`: errors, of which only the absolute value counts."""
        places, priorities = checked(places, priorities)
        faulty = self._revise(self.heap, places, priorities, self.greatest, len(self))
        if faulty >= 0:
            raise fault(places, priorities, faulty, len(self))
        self._count(len(places))

    def selection(self, count: int) -> tuple[Selection, Ranks]:  # noqa: ARG002 - others need room for a batch
        """Return the functions that sample batches in a compiled loop, and their state."""
        book = Ranks(self.heap, self._shares, self.greatest, self._revised, self.alpha)
        return Selection(enter_ranks, draw_ranks, revise_by_rank), book

    def tidy(self) -> None:
        """Sort the heap if at least `capacity` priorities have changed."""
        self._count(0)

    def sort(self) -> None:
        """Sort the heap exactly; done automatically after `capacity` changes."""
        filled = len(self)
        order = np.argsort(-self.heap.priorities[:filled], kind="stable")
        self.heap.places[:filled] = order
        self.heap.ranks[order] = np.arange(filled)
        self._revised[0] = 0

    def bookkeeping(self) -> dict[str, NDArray[Any]]:
        """Return copies of all state except the records."""
        heap, filled = self.heap, len(self)
        places = np.where(np.arange(self.capacity) < filled, heap.places, 0)
        more = {"priorities": heap.priorities, "greatest": self.greatest, "revised": self._revised}
        return {**super().bookkeeping(), "places": places, **{name: array.copy() for name, array in more.items()}}

    def load_bookkeeping(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load the arrays of `bookkeeping`, once the records are in place. Raises ValueError if they do not fit."""
        super().load_bookkeeping(state)
        self.heap.places[:], self.heap.priorities[:] = state["places"], state["priorities"]
        self.heap.ranks[self.heap.places[: len(self)]] = np.arange(len(self))
        self.greatest[:], self._revised[:] = state["greatest"], state["revised"]

    def check_bookkeeping(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Raise ValueError unless `bookkeeping` of such a buffer can have returned this state."""
        super().check_bookkeeping(state)
        filled = int(state["counts"][FILLED])
        places, priorities = state["places"][:filled], state["priorities"]
        if not np.array_equal(np.sort(places), np.arange(filled)):
            raise ValueError("places of the state are not each of the filled ones once")
        ranked = priorities[places]
        ordered = (ranked[1:] <= ranked[(np.arange(1, filled) - 1) // 2]).all()
        if not (ordered and (priorities >= 0).all() and priorities.max() <= state["greatest"][0] < inf):
            raise ValueError(
                "priorities of the state are not those of a buffer: at least 0, and in the order of a heap"
            )

    def _count(self, changes: int) -> None:
        self._revised[0] += changes
        if self._revised[0] >= self.capacity:
            self.sort()
