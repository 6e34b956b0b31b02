"""A table of action values as Python sees it: made, grown, looked up, saved."""

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

DENSE_BYTES = 2**28  # the largest table that is dense unless it is asked for otherwise
MOST_ROWS = 2**31  # of a sparse table: what a slot can number
Allocate = Callable[[tuple[int, ...], Any], NDArray[Any]]  # (shape, dtype) -> zeros, in whatever memory


def choose_storage(storage: str, states: int, row: np.dtype[Any], name: str = "this environment") -> str:
    """Dense where the whole table takes at most 256 MiB, else sparse; or what is asked for, where it is possible."""
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
        """The rows that are in use."""
        return int(self.arrays.counts[ROWS_USED])

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the values."""
        return self.row["values"].base

    @property
    def capacity(self) -> int:
        """The rows that there is room for."""
        return min(len(self.arrays.rows), int(FULLEST * len(self.arrays.slots))) if self.sparse else self.states

    @property
    def nbytes(self) -> int:
        """The memory that the table takes."""
        return self.arrays.rows.nbytes + self.arrays.slots.nbytes

    @property
    def values(self) -> NDArray[Any]:
        """The values of all rows in use, (rows, sets * actions); a view, which a table that grows leaves behind."""
        return self.arrays.rows["values"][: len(self)]

    @property
    def keys(self) -> NDArray[np.int64]:
        """The states of all rows in use; -1 (`NOBODY`) for those that threads which came second left unused."""
        return self.arrays.rows["state"][: len(self)] if self.sparse else np.arange(self.states)

    def room(self, more: int) -> bool:
        """Whether so many more rows find room."""
        return not self.sparse or len(self) + more <= self.capacity

    def grow(self, more: int) -> Table:
        """Make room for so many more rows; places stay good.

        Sizes are powers of two, so that they follow from the number of rows, and a table that was loaded grows when
        the one that was saved would have.
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
        """Go on in other memory, such as one that processes share; places stay good."""
        moved = [allocate(array.shape, array.dtype) for array in self.arrays]
        for array, before in zip(moved, self.arrays, strict=True):
            array[:] = before
        self.arrays, self._allocate = Table(*moved), allocate

    def places(self, states: Any) -> NDArray[np.int64]:
        """The places of states, -1 where there is none."""
        states = np.ascontiguousarray(states, np.int64)
        if not self.sparse:
            return states
        found = np.empty(len(states), np.int64)
        self._call(find_all, states, found)
        return found

    def look_up(self, states: Any) -> NDArray[Any]:
        """The values of states, (states, sets, actions); those of states that were never met are the initial ones."""
        places = self.places(states)
        values = self.arrays.rows["values"][np.maximum(places, 0)]
        values = np.where((places >= 0)[:, None], values, np.asarray(self.initial, values.dtype))
        return values.reshape(len(values), self.sets, self.actions)

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of what makes the table: values, and where there are, the states of its rows and visits.

        Rows that threads left unused are there too, as those of nobody: whoever saved the place of a row finds it.
        """
        rows = self.arrays.rows[: len(self)]
        return {name: rows[name].copy() for name in self.row.names or ()}

    def specs(self) -> Specs:
        """What the arrays of such a table must be; that no state stands in it twice is looked at besides."""
        count = None if self.sparse else self.states
        bounds = {"state": (NOBODY, self.states - 1), "visits": (0, None), "values": (None, None)}
        return {
            name: ArraySpec(self.row[name].base, (count, *self.row[name].shape), *bounds[name])
            for name in self.row.names or ()
        }

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take what `state` gave; what does not fit is refused before anything is changed."""
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
        """As the function `mark`, of several rows."""
        rows, marks, before = self.arrays.rows, self.arrays.marks, self.arrays.before
        words, bits = places // MARKS, np.uint64(1) << (places % MARKS).astype(np.uint64)
        fresh = places[marks[words] & bits == 0]
        before[fresh] = rows[fresh]
        np.bitwise_or.at(marks, words, bits)

    def _check_rows(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Refuse rows of which not each has a state of its own."""
        if len({len(array) for array in state.values()}) > 1:
            raise StateError("the arrays of the table differ in length")
        keys = np.sort(state["state"][state["state"] != NOBODY])  # np.unique takes ten times as long
        if (keys[1:] == keys[:-1]).any():
            raise StateError("the table has a state twice")

    def _clear(self, rows: NDArray[Any]) -> None:
        """Make rows as those of states that nobody has met."""
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
        """Run a compiled function of this table; its types stay the same however it grows."""
        if function not in self._compiled:
            translator = cpu_translator("table", double=False)
            every = (self.arrays, *arguments)
            self._compiled[function] = compile_loop(function, every, translator, before=lambda: None)
        self._compiled[function](self.arrays, *arguments)


def find_all(table, states, found):
    """The places of many states."""
    for i in range(len(states)):
        found[i] = find_known(table, states[i])


def _slots_for(rows: int) -> int:
    """Slots for so many rows: a power of two, at most as full as is good."""
    return _power_of_two(ceil(max(rows, 8) / FULLEST))


def _power_of_two(least: int) -> int:
    """The smallest one that is not smaller."""
    return 1 << (least - 1).bit_length()
