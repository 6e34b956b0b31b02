"""Value table in Python: creation, growth, lookup, saving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.engine.disk.allowance import claim
from velocirl.engine.disk.saved import ArraySpec, Specs, StateError, check_arrays
from velocirl.tabular.tables.table import (
    FIRST_ROWS,
    FULLEST,
    MARKS,
    NOBODY,
    ROWS_USED,
    Table,
    enter_rows,
    find_known,
    row_type,
)

DENSE_BYTES = 2**28  # the largest table that is dense by default
MOST_ROWS = 2**31  # of a sparse table: the largest row number of a slot
Allocate = Callable[[tuple[int, ...], Any], NDArray[Any]]  # (shape, dtype) -> zeros, in whatever memory


def choose_storage(storage: str, states: int, row: np.dtype[Any], name: str = "this environment") -> str:
    """Resolve storage="auto": dense if the whole table takes at most 256 MiB, else sparse. Validate other choices."""
    size = states * row.itemsize
    if storage == "auto":
        return "dense" if size <= DENSE_BYTES else "sparse"
    if storage == "dense" and size > 2**40:
        raise ValueError(f'a dense table of {name} would take {size / 2**40:,.0f} TiB: use storage="sparse"')
    return storage


class ValueTable:
    """Values of `actions` actions in each of `states` states."""

    def __init__(
        self,
        states: int,
        actions: int,
        *,
        sets: int = 1,
        storage: str = "dense",
        visits: bool = False,
        marks: bool = False,
        dtype: str = "float32",
        initial: float = 0.0,
        allocate: Allocate = np.zeros,
    ) -> None:
        self.states, self.actions, self.sets, self.initial = states, actions, sets, initial
        self.sparse, self.counts_visits, self.marks_rows = storage == "sparse", visits, marks
        self.row = row_type(actions, sets=sets, sparse=self.sparse, visits=visits, dtype=dtype)
        self._allocate = allocate
        self._compiled: dict[Any, Callable[..., Any]] = {}
        counts = allocate((8,), np.int64)
        rows = self._empty_rows(FIRST_ROWS if self.sparse else states)
        slots = allocate((_slots_for(FIRST_ROWS) if self.sparse else 1,), np.int64)
        counts[ROWS_USED] = 0 if self.sparse else states
        self.arrays = Table(rows, slots, counts, *self._empty_marks(len(rows)))

    def __len__(self) -> int:
        """Return the number of rows in use."""
        return int(self.arrays.counts[ROWS_USED])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.row["values"].base

    @property
    def capacity(self) -> int:
        """Number of rows that fit."""
        return min(len(self.arrays.rows), int(FULLEST * len(self.arrays.slots))) if self.sparse else self.states

    @property
    def nbytes(self) -> int:
        """Memory of the table in bytes."""
        return self.arrays.rows.nbytes + self.arrays.slots.nbytes

    @property
    def values(self) -> NDArray[Any]:
        """Values of all rows in use, (rows, sets * actions); a view, which becomes stale when the table grows."""
        return self.arrays.rows["values"][: len(self)]

    @property
    def keys(self) -> NDArray[np.int64]:
        """States of all rows in use; -1 (`NOBODY`) for rows left unused after two threads added the same state."""
        return self.arrays.rows["state"][: len(self)] if self.sparse else np.arange(self.states)

    def room(self, more: int) -> bool:
        """Return whether `more` additional rows fit."""
        return not self.sparse or len(self) + more <= self.capacity

    def grow(self, more: int) -> Table:
        """Make room for `more` additional rows; indices of rows stay valid.

        Sizes are powers of two, so that they follow from the number of rows. A loaded table therefore grows when the
        saved one would have.
        """
        if self.room(more):
            return self.arrays
        used, needed = len(self), len(self) + more
        if needed > MOST_ROWS:
            raise MemoryError(f"a sparse table holds at most {MOST_ROWS:,} states")
        rows, slots, counts, marks, before = self.arrays
        if needed > len(rows):
            rows = self._empty_rows(min(_power_of_two(needed), MOST_ROWS))
            rows[:used] = self.arrays.rows[:used]
            if self.marks_rows:
                marks, before = self._empty_marks(len(rows))
                marks[: len(self.arrays.marks)] = self.arrays.marks
                before[:used] = self.arrays.before[:used]
        fresh = needed > int(FULLEST * len(slots))
        if fresh:
            slots = self._allocate((_slots_for(needed),), np.int64)
        self.arrays = Table(rows, slots, counts, marks, before)
        if fresh:
            self._enter(0, used)
        return self.arrays

    def move(self, allocate: Allocate) -> None:
        """Move to other memory, such as shared memory; indices of rows stay valid."""
        moved = [allocate(array.shape, array.dtype) for array in self.arrays]
        for array, before in zip(moved, self.arrays, strict=True):
            array[:] = before
        self.arrays, self._allocate = Table(*moved), allocate

    def places(self, states: Any) -> NDArray[np.int64]:
        """Return the row indices of states, -1 for states without a row."""
        states = np.ascontiguousarray(states, np.int64)
        if not self.sparse:
            return states
        found = np.empty(len(states), np.int64)
        self._call(find_all, states, found)
        return found

    def look_up(self, states: Any) -> NDArray[Any]:
        """Return the values of states, (states, sets, actions); unvisited states have the initial values."""
        places = self.places(states)
        values = self.arrays.rows["values"][np.maximum(places, 0)]
        values = np.where((places >= 0)[:, None], values, np.asarray(self.initial, values.dtype))
        return values.reshape(len(values), self.sets, self.actions)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of the table's content: values and, if present, the states of its rows and visits.

        Rows that threads left unused are included with the state -1, so that saved row indices stay valid.
        """
        rows = self.arrays.rows[: len(self)]
        return {name: rows[name].copy() for name in self.row.names or ()}

    def specs(self) -> Specs:
        """Return the specs of this table's arrays; `load_state` also checks that no state occurs twice."""
        count = None if self.sparse else self.states
        bounds = {"state": (NOBODY, self.states - 1), "visits": (0, None), "values": (None, None)}
        return {
            name: ArraySpec(self.row[name].base, (count, *self.row[name].shape), *bounds[name])
            for name in self.row.names or ()
        }

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load the result of `state`; invalid arrays are refused before anything is changed."""
        check_arrays(state, self.specs(), allow_nan=True)
        if self.sparse:
            self._check_rows(state)
        self.mark(np.arange(len(self) if self.marks_rows else 0))
        used, count = len(self), len(state["values"])
        if self.sparse:
            self.grow(max(count - used, 0))
            self.arrays.slots[:] = 0
            self.arrays.counts[ROWS_USED] = count
            self._clear(self.arrays.rows[count:used])
        for name in self.row.names or ():
            self.arrays.rows[name][:count] = state[name]
        if self.sparse:
            self._enter(0, count)

    def mark(self, places: NDArray[Any]) -> None:
        """Mark several rows, as the function `mark` does."""
        rows, marks, before = self.arrays.rows, self.arrays.marks, self.arrays.before
        words, bits = places // MARKS, np.uint64(1) << (places % MARKS).astype(np.uint64)
        fresh = places[marks[words] & bits == 0]
        before[fresh] = rows[fresh]
        np.bitwise_or.at(marks, words, bits)

    def _check_rows(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Raise unless arrays have the same length and each used row has its own state."""
        if len({len(array) for array in state.values()}) > 1:
            raise StateError("the arrays of the table differ in length")
        keys = np.sort(state["state"][state["state"] != NOBODY])  # np.unique takes 10 times as long
        if (keys[1:] == keys[:-1]).any():
            raise StateError("the table has a state twice")

    def _clear(self, rows: NDArray[Any]) -> None:
        """Reset rows to those of unvisited states."""
        for name in self.row.names or ():
            rows[name] = self.initial if name == "values" else 0

    def _empty_rows(self, count: int) -> NDArray[Any]:
        claim(count * self.row.itemsize, f"a table of {count:,} rows")
        rows = self._allocate((count,), self.row)
        if self.initial != 0.0:
            rows["values"] = self.initial
        return rows

    def _empty_marks(self, rows: int) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        rows = rows if self.marks_rows else 1
        return self._allocate((-(-rows // MARKS),), np.uint64), self._allocate((rows,), self.row)

    def _enter(self, first: int, stop: int) -> None:
        self._call(enter_rows, first, stop)

    def _call(self, function: Any, *arguments: Any) -> None:
        """Run a compiled function of this table; its types stay the same when the table grows."""
        if function not in self._compiled:
            translator = cpu_translator("table", double=False)
            every = (self.arrays, *arguments)
            self._compiled[function] = compile_loop(function, every, translator, before=lambda: None)
        self._compiled[function](self.arrays, *arguments)


def find_all(table, states, found):
    """Find the row indices of many states."""
    for i in range(len(states)):
        found[i] = find_known(table, states[i])


def _slots_for(rows: int) -> int:
    """Return the number of slots for `rows` rows: a power of two, filled at most to FULLEST."""
    return _power_of_two(ceil(max(rows, 8) / FULLEST))


def _power_of_two(least: int) -> int:
    """Return the smallest power of two that is at least `least`."""
    return 1 << (least - 1).bit_length()
