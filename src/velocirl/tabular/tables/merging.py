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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.tabular.tables.replicas import caught_up
from velocirl.tabular.tables.table import find_dense, find_known, find_or_add
from velocirl.tabular.tables.value_table import ValueTable

FIRST_CHANGES = 4096  # room for changes, at first


def change_type(table: ValueTable) -> np.dtype[Any]:
    """The record of a value that moved: whose it is, how often it was updated, and how far it went times that."""
    state = np.int32 if table.states < 2**31 else np.int64
    action = np.int16 if table.actions < 2**15 else np.int32
    return np.dtype([("state", state), ("action", action), ("visits", np.int32), ("moved", table.dtype, (table.sets,))])


class Replica:
    """A table that counts visits, and how it was when all replicas were last alike."""

    def __init__(self, table: ValueTable) -> None:
        if not table.counts_visits:
            raise ValueError("tables are merged by their visits, and this one does not count them")
        self.table = table
        self.base = table.arrays.rows.copy()
        self._changes = np.zeros(FIRST_CHANGES, change_type(table))
        self._gathered, self._places = self._changes[:0], np.zeros(0, np.uint64)
        self._cursor = np.zeros(2, np.int64)
        self._loops: dict[str, Callable[..., Any]] = {}

    def agree(self) -> None:
        """From now on, what the table holds is what all have."""
        self._follow()
        self.base[: len(self.table)] = self.table.arrays.rows[: len(self.table)]

    def changes(self) -> NDArray[Any]:
        """What moved since all were alike, row after row; good until it is called again."""
        self._follow()
        rows, cursor = self.table.arrays.rows, self._cursor
        cursor[:] = 0
        while True:
            self._run("collect", collector, rows, self.base, len(self.table), self._changes, cursor)
            if cursor[0] == len(self.table):
                return self._changes[: cursor[1]]
            self._changes = np.concatenate([self._changes, np.zeros_like(self._changes)])

    def room(self, count: int) -> NDArray[Any]:
        """An array for the changes of all replicas; the same memory every time, as new memory would cost more."""
        if len(self._gathered) < count:
            self._gathered = np.zeros(count + count // 4, self._changes.dtype)
            self._places = np.zeros(len(self._gathered), np.uint64)
        return self._gathered[:count]

    def merge(self, changes: NDArray[Any]) -> None:
        """Take the changes of all replicas, this one's too, in an order that is the same for all."""
        self.room(len(changes))
        unknown = self._run("count", counter, self.table.arrays, changes)
        table = self.table.grow(int(unknown))
        self._follow()
        self._run("merge", merger, table, self.base, changes, self._places)

    def totals(self, first: int, stop: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """How far the values of some rows of a dense table moved times their visits, and these visits."""
        actions, sets = self.table.actions, self.table.sets
        moved = np.empty((stop - first, sets * actions), self.table.dtype)
        visits = np.empty((stop - first, actions), np.int32)
        self._run("totals", totaller, self.table.arrays.rows, self.base, first, moved, visits)
        return moved, visits

    def settle(self, first: int, moved: NDArray[Any], visits: NDArray[np.int32]) -> None:
        """Take the sums of all replicas' totals of some rows."""
        self._run("settle", settler, self.table.arrays.rows, self.base, first, moved, visits)

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

    def _follow(self) -> None:
        """Where the table has grown, what all were alike in grows too: by rows as they are at first."""
        grown = len(self.table.arrays.rows)
        if len(self.base) != grown:
            before, self.base = self.base, np.zeros(grown, self.table.row)
            self.base[: len(before)] = before
            self.base["values"][len(before) :] = self.table.initial
        used = slice(0, len(self.table))
        if self.table.sparse:
            self.base["state"][used] = self.table.arrays.rows["state"][used]

    def _run(self, name: str, make: Callable[..., Any], *arguments: Any) -> Any:
        """Run a loop over this kind of table, compiled when it is first needed."""
        if name not in self._loops:
            loop = make(self.table.actions, self.table.sets, self.table.sparse)
            translator = cpu_translator("table", double=False)
            self._loops[name] = compile_loop(loop, arguments, translator, before=lambda: None)
        return self._loops[name](*arguments)


def visited(row, before, action, actions, sets):
    """How often a value was updated since `before`: its visits, and at least once where it has moved."""
    moved = 0
    for s in range(sets):
        moved |= 1 if row.values[s * actions + action] != before.values[s * actions + action] else 0
    visits = row.visits[action] - before.visits[action]
    return np.int32(visits if visits != 0 else moved)


def state_of_place(rows, place):  # noqa: ARG001 - as the other
    """The state of a row of a dense table."""
    return np.int64(place)


def state_of_row(rows, place):
    """The state of a row of a sparse table."""
    return rows[place].state


def collector(actions: int, sets: int, sparse: bool) -> Any:
    """`collect(rows, base, stop, changes, cursor)`: changes from the cursor's row on, until there is no more room."""
    state_of = state_of_row if sparse else state_of_place

    def collect(rows, base, stop, changes, cursor):
        place, count = cursor[0], cursor[1]
        while place < stop and count + actions <= len(changes):
            row, before = rows[place], base[place]
            differs = np.int32(0)
            for a in range(actions):
                differs |= row.visits[a]
            if differs != 0:  # else it was never visited, and what it was before need not be fetched
                differs = np.int32(0)
                for a in range(actions):
                    differs |= np.int32(row.visits[a] ^ before.visits[a])
                for k in range(sets * actions):
                    differs |= np.int32(row.values[k] != before.values[k])
            if differs != 0:
                for a in range(actions):
                    visits = visited(row, before, a, actions, sets)
                    change = changes[count]  # of a value that did not move it is written too, and then written over
                    change.state = state_of(rows, place)
                    change.action = a
                    change.visits = visits
                    for s in range(sets):
                        k = s * actions + a
                        change.moved[s] = (row.values[k] - before.values[k]) * visits
                    count += 1 if visits != 0 else 0
            place += 1
        cursor[0], cursor[1] = place, count

    return collect


def counter(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - as the others
    """`count(table, changes)`: at most so many rows are new to a table."""

    def count(table, changes):
        unknown, last = 0, np.int64(-1)
        for i in range(len(changes)):
            state = np.int64(changes[i].state)
            if state != last:  # those of one state lie together
                unknown += 1 if find_known(table, state) < 0 else 0
            last = state
        return unknown

    def nothing(table, changes):  # noqa: ARG001 - as the other
        return 0

    return count if sparse else nothing


def merger(actions: int, sets: int, sparse: bool) -> Any:
    """`merge(table, base, changes, places)`: sum the changes up in the table's rows, then divide by their visits."""
    find = find_or_add if sparse else find_dense

    def merge(table, base, changes, places):
        rows = table.rows
        for i in range(len(changes)):
            place = find(table, np.int64(changes[i].state))
            places[i] = place
            a = changes[i].action
            rows[place].visits[a] = base[place].visits[a]
            for s in range(sets):
                rows[place].values[s * actions + a] = 0
        for i in range(len(changes)):
            place, change = places[i], changes[i]
            a = change.action
            rows[place].visits[a] += change.visits
            for s in range(sets):
                rows[place].values[s * actions + a] += change.moved[s]
        for i in range(len(changes)):
            place, a = places[i], changes[i].action
            visits = np.int32(rows[place].visits[a] - base[place].visits[a])
            if visits != 0:  # else another replica's change has brought it here
                for s in range(sets):
                    k = s * actions + a
                    rows[place].values[k] = base[place].values[k] + rows[place].values[k] / visits
                    base[place].values[k] = rows[place].values[k]
                base[place].visits[a] = rows[place].visits[a]

    return merge


def totaller(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - dense tables only
    """`total(rows, base, first, moved, visits)`: of the rows from `first` on."""

    def total(rows, base, first, moved, visits):
        for i in range(len(moved)):
            row, before = rows[first + i], base[first + i]
            for a in range(actions):
                visits[i, a] = visited(row, before, a, actions, sets)
            for s in range(sets):
                for a in range(actions):
                    k = s * actions + a
                    moved[i, k] = (row.values[k] - before.values[k]) * visits[i, a]

    return total


def settler(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - dense tables only
    """`settle(rows, base, first, moved, visits)`: of the rows from `first` on."""

    def settle(rows, base, first, moved, visits):
        for i in range(len(moved)):
            row, before = rows[first + i], base[first + i]
            for a in range(actions):
                if visits[i, a] != 0:
                    for s in range(sets):
                        k = s * actions + a
                        row.values[k] = before.values[k] + moved[i, k] / visits[i, a]
                        before.values[k] = row.values[k]
                    row.visits[a] = before.visits[a] + visits[i, a]
                    before.visits[a] = row.visits[a]

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
