"""Merging of tables: replicas that were equal and have learned separately are combined.

Every replica r made n_r updates of a value that was W0 at the last merge, and has it at W_r. Merged, it becomes

    W = W0 + sum_r n_r (W_r - W0) / sum_r n_r

for each state and action: the mean of the replicas, weighted by their updates. So a value that all of them moved to the
same target goes there once, not once per replica: the number of replicas does not change the learning rate. Visits are
summed. If a row has several sets of values (double Q-learning), its visits count for each of them. A value that moved
without a visit (by a trace) counts as visited once.
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
    """Changes of a table."""

    list: NDArray[Any]  # records, see `change_type`
    counts: NDArray[np.int64]  # number of changes for each owner of rows


class Replica:
    """Table that counts visits, with its state at the last merge.

    If the table marks its rows, it keeps the old values of changed rows itself. Otherwise the replica holds a copy of
    all rows.
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
        """Declare the table's current content common to all replicas."""
        self.table.arrays.marks[:] = 0
        if not self.table.marks_rows:
            self.base[:] = self.table.arrays.rows

    def changes(self, owners: int = 1) -> Changes:
        """Return the changes since the last merge, for rows owned by `owners` ranks; valid until the next call."""
        ends, cursor = np.zeros(owners, np.int64), self._cursor
        cursor[:] = 0
        while True:
            self._run("collect", collector, self.table.arrays, self._marked, self._changes, ends, cursor)
            if cursor[OWNER] == owners:
                return Changes(self._changes[: cursor[COUNT]], np.diff(ends, prepend=0))
            self._changes = np.concatenate([self._changes, np.zeros_like(self._changes)])

    def room(self, count: int) -> NDArray[Any]:
        """Return an array for `count` changes, in memory reused between calls, as new memory would be slower."""
        if len(self._gathered) < count:
            self._gathered = np.zeros(count + count // 4, self._changes.dtype)
        return self._gathered[:count]

    def merge_owned(self, changes: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[Any]:
        """Merge changes of one owner's strips, `counts` of them from each replica in turn. Returns the outcomes."""
        ends = np.cumsum(counts)
        spans = np.stack([ends - counts, ends, ends], axis=1)
        if len(self._outcomes) < len(changes):
            self._outcomes = np.zeros(len(changes) + len(changes) // 4, changes.dtype)
        parts = changes, spans, *self._sums, self._outcomes
        count = self._run("merge_owned", strip_merger, self.table.arrays, *parts)
        return self._outcomes[:count]

    def take_outcomes(self, outcomes: NDArray[Any]) -> None:
        """Apply the merged changes of all owners; after that all replicas are equal."""
        self._run("take_outcomes", taker, self.table.arrays.rows, outcomes)
        self.agree()

    def merge(self, changes: NDArray[Any]) -> None:
        """Merge the changes of all replicas, this one's too, into a sparse table; after that all replicas are equal."""
        if len(self._places) < len(changes):
            self._places = np.zeros(len(changes) + len(changes) // 4, np.uint64)
        unknown = self._run("count", counter, self.table.arrays, changes)
        self._run("merge", merger, self.table.grow(int(unknown)), changes, self._places)
        self.agree()

    def totals(self, first: int, stop: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Return how far the values of some rows of a dense table moved times their visits, and these visits."""
        actions, sets = self.table.actions, self.table.sets
        moved = np.zeros((stop - first, sets * actions), self.table.dtype)
        visits = np.zeros((stop - first, actions), np.int32)
        self._run("totals", totaller, self.table.arrays, first, moved, visits)
        return moved, visits

    def settle(self, first: int, moved: NDArray[Any], visits: NDArray[np.int32]) -> None:
        """Apply the sums of all replicas' totals to some rows; call `agree` once this is done for all rows."""
        self._run("settle", settler, self.table.arrays, first, moved, visits)

    def catch_up(self, first: int, values: NDArray[Any], visits: NDArray[np.int32], rate: float) -> None:
        """Continue from some rows of a common table, as if this replica's updates had been made after all others.

        `values` and `visits` hold the common rows, and are replaced by what must be added to these. With the learning
        rate, n updates move a value the fraction k = 1 - (1 - rate)^n of the way from W0 to their target, delta in all.
        If the value is W by now, they would have moved it by delta - k (W - W0).
        """
        keep = 1.0 - float(rate)
        self._run("catch_up", follower, self.table.arrays.rows, self.base, first, values, visits, keep)

    def take(self, rows: NDArray[Any]) -> None:
        """Take over another table's rows; the positions of this table's own rows stay."""
        if not self.table.sparse:
            self.table.arrays.rows[:] = rows
        else:
            table = self.table.grow(len(rows))
            places = np.zeros(len(rows), np.uint64)
            self._run("find", finder_of_all, table, np.ascontiguousarray(rows["state"]), places)
            table.rows[places] = rows
        self.agree()

    def _run(self, name: str, make: Callable[..., Any], *arguments: Any) -> Any:
        """Run a loop over this kind of table, compiled on first use."""
        if name not in self._loops:
            loop = make(self.table.actions, self.table.sets, self.table.sparse)
            translator = cpu_translator("table", double=False)
            self._loops[name] = compile_loop(loop, arguments, translator, before=lambda: None)
        return self._loops[name](*arguments)


def totaller(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - dense tables only
    """Compose `total(table, first, moved, visits)` for the rows from `first` on; unmarked rows keep their zeros."""

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
    """Compose `settle(table, first, moved, visits)` for the rows from `first` on."""

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
    """Compose `follow(rows, base, first, values, visits, keep)` for the rows from `first` on.

    With several sets of values, each update moves one of them: each set gets its part of the visits.
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
    """Compose `find(table, states, places)`: find the rows of states, adding missing ones."""

    def find(table, states, places):
        for i in range(len(states)):
            places[i] = find_or_add(table, states[i])

    return find
