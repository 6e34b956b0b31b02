"""Tables that were one and have learnt apart, brought together again.

Every replica r made n_r updates of a value that was W0 when they parted, and has it at W_r. Together they are

    W = W0 + sum_r n_r (W_r - W0) / sum_r n_r

for each state and action: the mean of the replicas, each as heavy as what it has seen. So a value that all of them
moved to the same target goes there once, not as many times as there are replicas: their number does not change the
learning rate. Visits become the sum of all. Where a row has several sets of values (double Q-learning), its visits
count for each of them; a value that moved without a visit (by a trace) counts as visited once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.tabular.tables.changes import (
    COUNT,
    OWNER,
    change_type,
    collector,
    counter,
    merger,
    rows_of_strip,
    strip_merger,
    taker,
    visited,
)
from velocirl.tabular.tables.replicas import caught_up
from velocirl.tabular.tables.table import find_or_add, is_marked
from velocirl.tabular.tables.value_table import ValueTable


class Changes(NamedTuple):
    """What moved in a table."""

    list: NDArray[Any]  # records, see `change_type`
    counts: NDArray[np.int64]  # how many of them are for each owner of rows


class Replica:
    """A table that counts visits, and how it was when all replicas were last alike.

    Where the table marks its rows, it knows itself how those were that have changed; else there is a copy of all.
    """

    def __init__(self, table: ValueTable) -> None:
        if not table.counts_visits:
            raise ValueError("tables are merged by their visits, and this one does not count them")
        self.table = table
        self.base = table.arrays.rows[:0] if table.marks_rows else table.arrays.rows.copy()
        rows = rows_of_strip(table.actions)
        values = rows * table.actions
        self._marked = np.zeros(rows, np.uint64)
        self._sums = np.zeros(values * table.sets, table.dtype), np.zeros(values, np.int32)
        self._changes, self._gathered, self._outcomes = (np.zeros(n, change_type(table)) for n in (values, 0, 0))
        self._places, self._cursor = np.zeros(0, np.uint64), np.zeros(3, np.int64)
        self._loops: dict[str, Callable[..., Any]] = {}

    def agree(self) -> None:
        """From now on, what the table holds is what all have."""
        self.table.arrays.marks[:] = 0
        if not self.table.marks_rows:
            self.base[:] = self.table.arrays.rows

    def changes(self, owners: int = 1) -> Changes:
        """What moved since all were alike, with rows shared out to so many owners; good until it is called again."""
        ends, cursor = np.zeros(owners, np.int64), self._cursor
        cursor[:] = 0
        while True:
            self._run("collect", collector, self.table.arrays, self._marked, self._changes, ends, cursor)
            if cursor[OWNER] == owners:
                return Changes(self._changes[: cursor[COUNT]], np.diff(ends, prepend=0))
            self._changes = np.concatenate([self._changes, np.zeros_like(self._changes)])

    def room(self, count: int) -> NDArray[Any]:
        """An array for what all replicas say; the same memory every time, as new memory would cost more."""
        if len(self._gathered) < count:
            self._gathered = np.zeros(count + count // 4, self._changes.dtype)
        return self._gathered[:count]

    def merge_owned(self, changes: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[Any]:
        """What comes of all changes of one owner's strips, which come from the replicas in turn, so many from each."""
        ends = np.cumsum(counts)
        spans = np.stack([ends - counts, ends, ends], axis=1)
        if len(self._outcomes) < len(changes):
            self._outcomes = np.zeros(len(changes) + len(changes) // 4, changes.dtype)
        parts = changes, spans, *self._sums, self._outcomes
        count = self._run("merge_owned", strip_merger, self.table.arrays, *parts)
        return self._outcomes[:count]

    def take_outcomes(self, outcomes: NDArray[Any]) -> None:
        """Take what came of the changes of all owners; now all are alike."""
        self._run("take_outcomes", taker, self.table.arrays.rows, outcomes)
        self.agree()

    def merge(self, changes: NDArray[Any]) -> None:
        """Take the changes of all replicas, this one's too, into a sparse table; now all are alike."""
        if len(self._places) < len(changes):
            self._places = np.zeros(len(changes) + len(changes) // 4, np.uint64)
        unknown = self._run("count", counter, self.table.arrays, changes)
        self._run("merge", merger, self.table.grow(int(unknown)), changes, self._places)
        self.agree()

    def totals(self, first: int, stop: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """How far the values of some rows of a dense table moved times their visits, and these visits."""
        actions, sets = self.table.actions, self.table.sets
        moved = np.zeros((stop - first, sets * actions), self.table.dtype)
        visits = np.zeros((stop - first, actions), np.int32)
        self._run("totals", totaller, self.table.arrays, first, moved, visits)
        return moved, visits

    def settle(self, first: int, moved: NDArray[Any], visits: NDArray[np.int32]) -> None:
        """Take the sums of all replicas' totals of some rows; `agree` when this was done for all."""
        self._run("settle", settler, self.table.arrays, first, moved, visits)

    def catch_up(self, first: int, values: NDArray[Any], visits: NDArray[np.int32], rate: float) -> None:
        """Go on from some rows of a common table, as if what this replica has done had been done after all else.

        `values` and `visits` come as they are there, and go as what has to be added there. With the learning rate, n
        updates bring a value the share k = 1 - (1 - rate)^n of the way from W0 to their target, delta in all; where it
        is W by now, delta - k (W - W0) is what they would have moved it by.
        """
        keep = 1.0 - float(rate)
        self._run("catch_up", follower, self.table.arrays.rows, self.base, first, values, visits, keep)

    def take(self, rows: NDArray[Any]) -> None:
        """Take over another table's rows; where rows of this one's own lie does not change."""
        if not self.table.sparse:
            self.table.arrays.rows[:] = rows
        else:
            table = self.table.grow(len(rows))
            places = np.zeros(len(rows), np.uint64)
            self._run("find", finder_of_all, table, np.ascontiguousarray(rows["state"]), places)
            table.rows[places] = rows
        self.agree()

    def _run(self, name: str, make: Callable[..., Any], *arguments: Any) -> Any:
        """Run a loop over this kind of table, compiled when it is first needed."""
        if name not in self._loops:
            loop = make(self.table.actions, self.table.sets, self.table.sparse)
            translator = cpu_translator("table", double=False)
            self._loops[name] = compile_loop(loop, arguments, translator, before=lambda: None)
        return self._loops[name](*arguments)


def totaller(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - dense tables only
    """`total(table, first, moved, visits)`: of the rows from `first` on; of those that are not marked it stays 0."""

    def total(table, first, moved, visits):
        for i in range(len(moved)):
            place = np.uint64(first + i)
            if is_marked(table, place):
                row, before = table.rows[place], table.before[place]
                for a in range(actions):
                    visits[i, a] = visited(row, before, a, actions, sets)
                for s in range(sets):
                    for a in range(actions):
                        k = s * actions + a
                        moved[i, k] = (row.values[k] - before.values[k]) * visits[i, a]

    return total


def settler(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - dense tables only
    """`settle(table, first, moved, visits)`: of the rows from `first` on."""

    def settle(table, first, moved, visits):
        for i in range(len(moved)):
            place = np.uint64(first + i)
            row = table.rows[place]
            before = table.before[place] if is_marked(table, place) else row
            for a in range(actions):
                if visits[i, a] != 0:
                    for s in range(sets):
                        k = s * actions + a
                        row.values[k] = before.values[k] + moved[i, k] / visits[i, a]
                    row.visits[a] = before.visits[a] + visits[i, a]

    return settle


def follower(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - dense tables only
    """`follow(rows, base, first, values, visits, keep)`: of the rows from `first` on.

    Where there are several sets of values, each update moves one of them: each has its share of the visits.
    """

    def follow(rows, base, first, values, visits, keep):
        for i in range(len(values)):
            row, before = rows[first + i], base[first + i]
            for a in range(actions):
                made = visited(row, before, a, actions, sets)
                leaves = keep ** (made / sets) if made != 0 else keep * 0 + 1
                for s in range(sets):
                    k = s * actions + a
                    now = values[i, k]
                    if made != 0:
                        now = caught_up(now, before.values[k], row.values[k], leaves)
                    values[i, k] = now - values[i, k]
                    row.values[k] = now
                    before.values[k] = now
                row.visits[a] = visits[i, a] + made
                before.visits[a] = row.visits[a]
                visits[i, a] = made

    return follow


def finder_of_all(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - sparse tables only
    """`find(table, states, places)`: where rows lie, added where there is none yet."""

    def find(table, states, places):
        for i in range(len(states)):
            places[i] = find_or_add(table, states[i])

    return find
