"""Proportional prioritized replay (Schaul et al., 2016): transitions with larger errors are sampled more often.

P(i) = p_i^alpha / sum_j p_j^alpha,  p_i = |error_i| + epsilon;  weight_i = (N P(i))^-beta / max_j weight_j
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.replay import FILLED, ReplayBuffer, Selection, copy_all
from velocirl.buffers.sum_tree import allocate_tree, find_all, leaf_of, put_all, put_range, total_of
from velocirl.engine.random import bits

SMALLEST, LARGEST = (
    np.float32(1e-37),
    np.float32(1e37),
)  # bounds of numbers whose logarithms and powers fit in single precision


def fraction(rng):
    """Return a random number in [0, 1) with 53 bits: single precision cannot resolve a share of a million leaves."""
    return np.float64(bits(rng) >> 11) * np.float64(1.1102230246251565e-16)


def power(base, exponent):
    """Compute base^exponent for an exponent from 0 to 1 in single precision, much faster than the exact one."""
    return exp(np.float32(exponent) * log(min(max(base, SMALLEST), LARGEST)))


class Shares(NamedTuple):
    """State of proportional sampling."""

    tree: NDArray[np.float32]
    starts: NDArray[np.int64]
    greatest: NDArray[np.float32]  # (1,) largest priority^alpha so far
    numbers: NDArray[np.float64]  # (batch,) workspace
    alpha: float
    epsilon: float


def enter_shares(book, counts, first, count):  # noqa: ARG001 - as every selection
    """Enter new records with the largest priority so far."""
    put_range(book.tree, book.starts, first, first + count, book.greatest[0])


def draw_shares(book, counts, rng, beta, places, weights):  # noqa: ARG001
    """Sample one index from each of `len(places)` equal shares of the total, with its weight."""
    share_out(book.tree, book.starts, rng, beta, places, book.numbers, weights)


def revise_shares(book, counts, places, errors):  # noqa: ARG001
    """Set the priorities of indices that follow from these errors, all of them finite."""
    for i in range(len(places)):
        book.numbers[i] = power(abs(errors[i]) + np.float32(book.epsilon), book.alpha)
    for i in range(len(places)):
        book.greatest[0] = max(book.greatest[0], book.numbers[i])
    put_all(book.tree, book.starts, places, book.numbers)


def share_out(tree, starts, rng, beta, places, masses, weights):
    """Sample one index from each of `len(places)` equal shares of the total, with its weight."""
    share = total_of(tree) / np.float64(len(places))
    for i in range(len(places)):
        masses[i] = (np.float64(i) + fraction(rng)) * share
    find_all(tree, starts, masses, places)
    least = np.float32(inf)
    for i in range(len(places)):
        weights[i] = leaf_of(tree, places[i])
        least = min(least, weights[i])
    for i in range(len(places)):
        # N and the total are the same in all weights, so they cancel in the division by the largest.
        weights[i] = power(least / weights[i], beta)


def draw_by_share(rows, tree, starts, rng, beta, places, masses, weights, drawn):
    """Sample indices by share with their weights, and copy the records."""
    share_out(tree, starts, rng, beta, places, masses, weights)
    copy_all(rows, places, drawn)


def revise(tree, starts, places, priorities, numbers, greatest, capacity, alpha, epsilon):
    """Set new priorities. Returns the first invalid index or -1; if one is invalid, nothing changes."""
    for i in range(len(places)):
        size = abs(priorities[i])
        if not size < inf or places[i] < 0 or places[i] >= capacity:
            return i
        numbers[i] = power(size + np.float32(epsilon), alpha)
    for i in range(len(places)):
        greatest[0] = max(greatest[0], numbers[i])
    put_all(tree, starts, places, numbers)
    return -1


class PrioritisedReplayBuffer(ReplayBuffer):
    """Replay buffer of the newest `capacity` transitions, sampled in proportion to priority^alpha.

    New transitions have the largest priority so far.
    """

    def __init__(
        self,
        capacity: int,
        dtype: np.dtype[Any],
        seed: int,
        alpha: float = 0.6,  # 0: uniform
        epsilon: float = 1e-6,  # added to every priority, so that every transition can be sampled
        path: Path | None = None,
    ) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be between 0 and 1, not {alpha!r}")
        if not 0 < epsilon < inf:
            raise ValueError(f"epsilon must be above 0 and finite, not {epsilon!r}")
        super().__init__(capacity, dtype, seed, path)
        self.alpha, self.epsilon = float(alpha), float(epsilon)
        self.tree, self.starts = allocate_tree(capacity)  # see `sum_tree`; leaf i belongs to row i
        self.greatest = np.ones(1, np.float32)  # largest priority^alpha so far
        self._numbers: dict[int, tuple[NDArray[np.float64], NDArray[np.float32]]] = {}
        self._prepare()

    def _prepare(self) -> None:
        tree, places = (self.tree, self.starts), np.zeros(1, np.int64)
        single, double = np.zeros(1, np.float32), np.zeros(1, np.float64)
        record = np.zeros(1, self._plain)
        self._fill = self._compile(put_range, *tree, 0, 0, 1.0)
        self._draw_by_share = self._compile(
            draw_by_share, self._plain_rows, *tree, self.rng, 1.0, places, double, single, record
        )
        self._revise = self._compile(revise, *tree, places, single, double, self.greatest, 1, 1.0, 1.0)

    def add(self, transitions: NDArray[Any]) -> None:
        """Append a batch of records in order, with the largest priority so far, overwriting the oldest."""
        first, count = self._append(transitions)
        stop, number = first + count, float(self.greatest[0])
        self._fill(self.tree, self.starts, first, min(stop, self.capacity), number)
        if stop > self.capacity:
            self._fill(self.tree, self.starts, 0, stop - self.capacity, number)

    def sample(self, count: int, beta: float) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float32]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sample records (count,). Returns them, their indices for `update`, and weights with a maximum of 1.

        With beta 1 the weights cancel the priorities in expectation; beta commonly rises from 0.4 to 1 in training. The
        next sample of this size overwrites the arrays.
        """
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must be between 0 and 1, not {beta!r}")
        drawn, places, plain = self._batch(count)
        masses, weights = self._room(count)
        self._draw_by_share(
            self._plain_rows, self.tree, self.starts, self.rng, float(beta), places, masses, weights, plain
        )
        return drawn, places, weights

    def update(self, places: NDArray[np.int64], priorities: NDArray[np.float32]) -> None:
        """Set new priorities at indices returned by `sample`: errors, of which only the absolute value counts."""
        places, priorities = checked(places, priorities)
        numbers, _ = self._room(len(places))
        faulty = self._revise(
            self.tree, self.starts, places, priorities, numbers, self.greatest, len(self), self.alpha, self.epsilon
        )
        if faulty >= 0:
            raise fault(places, priorities, faulty, len(self))

    def selection(self, count: int) -> tuple[Selection, Shares]:
        """Return the functions that sample batches of `count` in a compiled loop, and their state."""
        book = Shares(self.tree, self.starts, self.greatest, np.zeros(count), self.alpha, self.epsilon)
        return Selection(enter_shares, draw_shares, revise_shares), book

    def chance(self, place: int) -> float:
        """Return the probability of a record in one draw."""
        return float(leaf_of(self.tree, place)) / float(total_of(self.tree))

    def bookkeeping(self) -> dict[str, NDArray[Any]]:
        """Return copies of all state except the records."""
        leaves = self.tree.reshape(-1)[: self.capacity].copy()
        return {**super().bookkeeping(), "priorities": leaves, "greatest": self.greatest.copy()}

    def load_bookkeeping(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load the arrays of `bookkeeping`, once the records are in place. Raises ValueError if they do not fit."""
        super().load_bookkeeping(state)
        self.greatest[:] = state["greatest"]
        arguments = self.tree, self.starts, np.arange(self.capacity), np.ascontiguousarray(state["priorities"])
        self._compile(put_all, *arguments)(*arguments)

    def _room(self, count: int) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Return the workspace and the weights for a batch of this size."""
        room = self._numbers.get(count)
        if room is None:
            room = self._numbers[count] = np.zeros(count, np.float64), np.zeros(count, np.float32)
        return room

    def check_bookkeeping(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Raise ValueError unless `bookkeeping` of such a buffer can have returned this state."""
        super().check_bookkeeping(state)
        filled, priorities = int(state["counts"][FILLED]), state["priorities"]
        sound = np.isfinite(priorities).all() and (priorities[:filled] > 0).all() and not priorities[filled:].any()
        if not sound or not max(priorities.max(), 0) <= state["greatest"][0] < inf:
            raise ValueError("priorities of the state are not those of a buffer: each record has one above 0")


def checked(places: NDArray[Any], priorities: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return indices and priorities in the types that the loops need. Raises ValueError if their shapes differ."""
    places = np.ascontiguousarray(places, np.int64)
    priorities = np.ascontiguousarray(priorities, np.float32)
    if places.ndim != 1 or places.shape != priorities.shape:
        raise ValueError(f"there must be one priority for each place: {places.shape} and {priorities.shape}")
    return places, priorities


def fault(places: NDArray[np.int64], priorities: NDArray[np.float32], i: int, filled: int) -> ValueError:
    """Return the error for an invalid index or priority."""
    if not np.isfinite(priorities[i]):
        return ValueError(f"priority {i} is {priorities[i]}; the learning has diverged, or its inputs are not finite")
    return ValueError(f"place {i} is {places[i]}, but the buffer has {filled} transitions; give what sample returned")
