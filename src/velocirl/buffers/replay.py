"""Replay: a ring of transitions, of which batches are drawn at random to learn from.

A transition is one record, so that drawing it costs one or two accesses to memory. A fleet writes them in groups, a
step of all its copies at a time. Loops that collect and learn do so by the functions of a `Selection`; `ReplayBuffer`
has the same for batches from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.replay_storage import allocate_rows
from velocirl.engine.compiler.compiling import compile_loop, learning_translator
from velocirl.engine.random import integer, streams

PLACE, FILLED, TOTAL = 0, 1, 2  # of the counts: where the next record goes, how many there are, how many ever came
MOST_ROWS = 2**31 - 1  # of which `integer` draws evenly


class Selection(NamedTuple):
    """How the records of a ring are selected, as functions for compiled loops; `book` is what they keep."""

    enter: Callable[..., Any]  # (book, counts, first, count): records were written to these places
    draw: Callable[..., Any]  # (book, counts, rng, beta, places, weights): random places and the weights of their loss
    revise: Callable[..., Any]  # (book, counts, places, errors): these were the errors there


class NoBook(NamedTuple):
    """What a uniform selection keeps: nothing, which a compiled loop has to see as something."""

    nothing: NDArray[np.int64]


def written(counts, capacity, count):
    """Let the counts go on after `count` records were written from PLACE on, none of them beyond the seam."""
    counts[PLACE] = counts[PLACE] + count if counts[PLACE] + count < capacity else 0
    counts[FILLED] = min(counts[FILLED] + count, capacity)
    counts[TOTAL] += count


def draw_place(counts, rng):
    """The place of a random record, each as probable as any other."""
    return integer(rng, 0, counts[FILLED])


def draw_uniformly(book, counts, rng, beta, places, weights):  # noqa: ARG001 - as every selection
    """Random places, all of the same weight."""
    for i in range(len(places)):
        places[i] = draw_place(counts, rng)
        weights[i] = 1.0


def nothing_to_enter(book, counts, first, count):
    """All records are alike."""


def nothing_to_revise(book, counts, places, errors):
    """All records are alike."""


def draw_all(rows, counts, rng, places, drawn):
    """Copies of random records, and where they were found."""
    for i in range(len(places)):
        places[i] = draw_place(counts, rng)
    copy_all(rows, places, drawn)


def copy_all(rows, places, drawn):
    """Copies of the records at these places. A loop of its own, so that many accesses to memory are under way."""
    for i in range(len(places)):
        drawn[i] = rows[places[i]]


class ReplayBuffer:
    """The newest `capacity` transitions, drawn uniformly; with a `path`, in a mapped file that may exceed memory."""

    def __init__(self, capacity: int, dtype: np.dtype[Any], seed: int, path: Path | None = None) -> None:
        if not 1 <= capacity <= MOST_ROWS:
            raise ValueError(f"capacity must be between 1 and {MOST_ROWS} transitions, not {capacity}")
        self.capacity = capacity
        self.rows: NDArray[Any] = allocate_rows(capacity, dtype, path)  # the ring itself
        self.counts = np.zeros(3, np.int64)
        self.rng: NDArray[np.uint64] = streams(seed, 1)[0]
        # Loops that only move records know nothing of them but their size: types of one size share their machine code.
        self._plain = np.dtype([("bytes", np.uint8, (dtype.itemsize,))])
        self._plain_rows = self.rows.view(self._plain)
        self._bytes = self.rows.view(np.uint8)
        self._batches: dict[int, tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]] = {}
        self._draw = self._compile(
            draw_all, self._plain_rows, self.counts, self.rng, np.zeros(1, np.int64), np.zeros(1, self._plain)
        )

    def add(self, transitions: NDArray[Any]) -> None:
        """Append a batch of records in order; the oldest make room."""
        self._append(transitions)

    def sample(self, count: int) -> NDArray[Any]:
        """Random records, (count,), any of them possibly twice; the array is overwritten by the next such sample."""
        drawn, places, plain = self._batch(count)
        self._draw(self._plain_rows, self.counts, self.rng, places, plain)
        return drawn

    def selection(self, count: int) -> tuple[Selection, Any]:  # noqa: ARG002 - others need room for a batch
        """The functions that draw batches of `count` in a compiled loop, and the book that they keep."""
        return Selection(nothing_to_enter, draw_uniformly, nothing_to_revise), NoBook(np.zeros(1, np.int64))

    def tidy(self) -> None:
        """What is due now and then, where a compiled loop fills and draws."""

    def __len__(self) -> int:
        return int(self.counts[FILLED])

    def bookkeeping(self) -> dict[str, NDArray[Any]]:
        """All of the state but the records themselves, as copies."""
        return {"counts": self.counts.copy(), "rng": self.rng.copy()}

    def load_bookkeeping(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `bookkeeping` gave, once the records are in place; what does not fit is refused."""
        self.check_bookkeeping(state)
        self.counts[:], self.rng[:] = state["counts"], state["rng"]

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that decides the next samples, as copies; for many records, see `segments`."""
        return {"rows": self.rows[: len(self)].copy(), **self.bookkeeping()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave; anything that does not fit is refused before anything is changed."""
        if "rows" not in state:
            raise ValueError("the state has no rows; load what a buffer's state() gave")
        rows = state["rows"]
        rest = {name: array for name, array in state.items() if name != "rows"}
        self.check_bookkeeping(rest)
        if rows.dtype != self.rows.dtype or rows.shape != (int(state["counts"][FILLED]),):
            raise ValueError(
                f"rows of the state are {rows.shape} of {rows.dtype}, but {int(state['counts'][FILLED])} of"
                f" {self.rows.dtype} are wanted; load what a buffer for the same environment saved"
            )
        self.rows[: len(rows)] = rows
        self.load_bookkeeping(rest)

    def _append(self, transitions: NDArray[Any]) -> tuple[int, int]:
        """Append records; returns the first place written and how many from there on, wrapping at the seam."""
        if transitions.dtype != self.rows.dtype or transitions.ndim != 1:
            raise ValueError(
                f"transitions must be records (count,) of {self.rows.dtype}, not {transitions.shape} of"
                f" {transitions.dtype}"
            )
        count = len(transitions)
        kept = min(count, self.capacity)
        first = (int(self.counts[PLACE]) + count - kept) % self.capacity
        size = self.rows.itemsize
        source = np.ascontiguousarray(transitions[count - kept :]).view(np.uint8)
        before = min(kept, self.capacity - first) * size  # bytes that fit before the seam
        self._bytes[first * size : first * size + before] = source[:before]
        if before < len(source):
            self._bytes[: len(source) - before] = source[before:]
        self.counts[PLACE] = (first + kept) % self.capacity
        self.counts[FILLED] = min(int(self.counts[FILLED]) + count, self.capacity)
        self.counts[TOTAL] += count
        return first, kept

    def _batch(self, count: int) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]:
        """The arrays that a sample of this size is written to: records, places, and the records as plain bytes."""
        if not self.counts[FILLED]:
            raise RuntimeError("the buffer is empty; add transitions before sampling")
        batch = self._batches.get(count)
        if batch is None:
            if count < 1:
                raise ValueError(f"a sample has at least 1 transition, not {count}")
            drawn = np.zeros(count, self.rows.dtype)
            batch = self._batches[count] = drawn, np.zeros(count, np.int64), drawn.view(self._plain)
        return batch

    def _compile(self, function: Any, *arguments: Any) -> Any:
        """A function of these types of arguments as machine code; compiled when it is first called.

        Where a compiled loop fills and draws, nobody calls it.
        """
        compiled: Any = None

        def run(*given: Any) -> Any:
            nonlocal compiled
            if compiled is None:
                compiled = compile_loop(function, arguments, learning_translator("replay"), before=lambda: None)
            return compiled(*given)

        return run

    def check_bookkeeping(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Refuse what `bookkeeping` of such a buffer cannot have given."""
        expected = self.bookkeeping()
        if set(state) != set(expected):
            raise ValueError(f"the state of this buffer has {', '.join(expected)}; this has {', '.join(sorted(state))}")
        for name, wanted in expected.items():
            found = state[name]
            if found.shape != wanted.shape or found.dtype != wanted.dtype:
                raise ValueError(
                    f"{name} of the state is {found.dtype}{found.shape}, but a buffer of {self.capacity} has"
                    f" {wanted.dtype}{wanted.shape}; load what a buffer of the same size saved"
                )
        place, filled, total = state["counts"].tolist()
        if total < 0 or place != total % self.capacity or filled != min(total, self.capacity):
            raise ValueError(f"counts {place}, {filled} and {total} of the state are not of a ring of {self.capacity}")
        if not state["rng"].any():
            raise ValueError("rng of the state is all zeros, from which no random numbers come")
