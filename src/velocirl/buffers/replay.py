"""Replay buffer: a ring of transitions, from which random batches are sampled.

A transition is one record, so that sampling it costs one or two memory accesses. A fleet writes transitions in groups,
one step of all its environments at a time. Loops that collect and learn use the functions of a `Selection`;
`ReplayBuffer` has the same operations for batches from Python.
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

PLACE, FILLED, TOTAL = 0, 1, 2  # indices of the counts: next index to write, records stored, records ever written
MOST_ROWS = 2**31 - 1  # limit of uniform draws by `integer`


class Selection(NamedTuple):
    """Sampling scheme of a ring, as functions for compiled loops; `book` is their state."""

    enter: Callable[..., Any]  # (book, counts, first, count): after records were written to these indices
    draw: Callable[..., Any]  # (book, counts, rng, beta, places, weights): sample indices and their loss weights
    revise: Callable[..., Any]  # (book, counts, places, errors): set the errors at these indices


class NoBook(NamedTuple):
    """Empty state of uniform sampling, as the array that a compiled loop needs."""

    nothing: NDArray[np.int64]


def written(counts, capacity, count):
    """Update the counts after `count` records were written from PLACE on, none beyond the end of the ring."""
    counts[PLACE] = counts[PLACE] + count if counts[PLACE] + count < capacity else 0
    counts[FILLED] = min(counts[FILLED] + count, capacity)
    counts[TOTAL] += count


def draw_place(counts, rng):
    """Sample the index of a record uniformly."""
    return integer(rng, 0, counts[FILLED])


def draw_uniformly(book, counts, rng, beta, places, weights):  # noqa: ARG001 - as every selection
    """Sample indices uniformly, with equal weights."""
    for i in range(len(places)):
        places[i] = draw_place(counts, rng)
        weights[i] = 1.0


def nothing_to_enter(book, counts, first, count):
    """Do nothing: all records are alike."""


def nothing_to_revise(book, counts, places, errors):
    """Do nothing: all records are alike."""


def draw_all(rows, counts, rng, places, drawn):
    """Copy random records into `drawn`, and their indices into `places`."""
    for i in range(len(places)):
        places[i] = draw_place(counts, rng)
    copy_all(rows, places, drawn)


def copy_all(rows, places, drawn):
    """Copy the records at these indices. A separate loop keeps many memory accesses in flight."""
    for i in range(len(places)):
        drawn[i] = rows[places[i]]


class ReplayBuffer:
    """Uniform replay buffer of the newest `capacity` transitions.

    With a `path` it is in a mapped file, which may exceed memory.
    """

    def __init__(self, capacity: int, dtype: np.dtype[Any], seed: int, path: Path | None = None) -> None:
        if not 1 <= capacity <= MOST_ROWS:
            raise ValueError(f"capacity must be between 1 and {MOST_ROWS} transitions, not {capacity}")
        self.capacity = capacity
        self.rows: NDArray[Any] = allocate_rows(capacity, dtype, path)  # the ring itself
        self.counts = np.zeros(3, np.int64)
        self.rng: NDArray[np.uint64] = streams(seed, 1)[0]
        # Loops that only move records depend only on their size: types of one size share machine code.
        self._plain = np.dtype([("bytes", np.uint8, (dtype.itemsize,))])
        self._plain_rows = self.rows.view(self._plain)
        self._bytes = self.rows.view(np.uint8)
        self._batches: dict[int, tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]] = {}
        self._draw = self._compile(
            draw_all, self._plain_rows, self.counts, self.rng, np.zeros(1, np.int64), np.zeros(1, self._plain)
        )

    def add(self, transitions: NDArray[Any]) -> None:
        """Append a batch of records in order, overwriting the oldest."""
        self._append(transitions)

    def sample(self, count: int) -> NDArray[Any]:
        """Sample records (count,) with replacement; the next such sample overwrites the array."""
        drawn, places, plain = self._batch(count)
        self._draw(self._plain_rows, self.counts, self.rng, places, plain)
        return drawn

    def selection(self, count: int) -> tuple[Selection, Any]:  # noqa: ARG002 - others need room for a batch
        """Return the functions that sample batches of `count` in a compiled loop, and their state."""
        return Selection(nothing_to_enter, draw_uniformly, nothing_to_revise), NoBook(np.zeros(1, np.int64))

    def tidy(self) -> None:
        """Do periodic maintenance, if a compiled loop fills and samples the buffer; here, nothing."""

    def __len__(self) -> int:
        return int(self.counts[FILLED])

    def bookkeeping(self) -> dict[str, NDArray[Any]]:
        """Return copies of all state except the records."""
        return {"counts": self.counts.copy(), "rng": self.rng.copy()}

    def load_bookkeeping(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load the arrays of `bookkeeping`, once the records are in place. Raises ValueError if they do not fit."""
        self.check_bookkeeping(state)
        self.counts[:], self.rng[:] = state["counts"], state["rng"]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of everything that determines the next samples; for many records, see `segments`."""
        return {"rows": self.rows[: len(self)].copy(), **self.bookkeeping()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load the arrays of `state`. Raises ValueError before any change if they do not fit."""
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
        """Append records. Returns the first index written and the count from there on, wrapping at the end."""
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
        before = min(kept, self.capacity - first) * size  # bytes that fit before the end of the ring
        self._bytes[first * size : first * size + before] = source[:before]
        if before < len(source):
            self._bytes[: len(source) - before] = source[before:]
        self.counts[PLACE] = (first + kept) % self.capacity
        self.counts[FILLED] = min(int(self.counts[FILLED]) + count, self.capacity)
        self.counts[TOTAL] += count
        return first, kept

    def _batch(self, count: int) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]:
        """Return the arrays of a sample of this size: records, indices, and the records as plain bytes."""
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
        """Return a function for these types of arguments that is compiled at its first call.

        It is not called if a compiled loop fills and samples the buffer.
        """
        compiled: Any = None

        def run(*given: Any) -> Any:
            nonlocal compiled
            if compiled is None:
                compiled = compile_loop(function, arguments, learning_translator("replay"), before=lambda: None)
            return compiled(*given)

        return run

    def check_bookkeeping(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Raise ValueError unless `bookkeeping` of such a buffer can have returned this state."""
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
