"""Changes of a table as a list: collected, merged with those of other replicas, and applied.

The rows of a dense table lie in strips, assigned to the replicas in turn. Each replica's list has the changes of the
first owner's strips first, in order of the rows. So the owner of a strip can merge all its changes while the sums stay
in a core's own cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from velocirl.engine.compiler.registers import fetch_ahead, lowest_bit
from velocirl.tabular.tables.table import MARKS, find_known, find_or_add, is_marked, mark
from velocirl.tabular.tables.value_table import ValueTable

AHEAD = 12  # rows prefetched from memory while others are processed
STRIP = 2**13  # values, or slightly more
OWNER, PART, COUNT = range(3)  # offsets in a cursor: whose strips, the next of them, and the changes so far


def change_type(table: ValueTable) -> np.dtype[Any]:
    """Return the record type of a changed value: state, action, updates, and distance moved times updates.

    After a merge the same record holds an outcome: the total of visits, and the merged value.
    """
    state = np.int32 if table.states < 2**31 else np.int64
    action = np.int16 if table.actions < 2**15 else np.int32
    return np.dtype([("state", state), ("action", action), ("visits", np.int32), ("moved", table.dtype, (table.sets,))])


def rows_of_strip(actions: int) -> int:
    """Return the number of rows of a strip, a multiple of the bits of a mark word."""
    return max(1, STRIP // actions // MARKS) * MARKS


def visited(row, before, action, actions, sets):
    """Return how often a value was updated since `before`: its visits, and at least 1 if it has moved."""
    moved = 0
    for s in range(sets):
        moved |= 1 if row.values[s * actions + action] != before.values[s * actions + action] else 0
    visits = row.visits[action] - before.visits[action]
    return np.int32(visits if visits != 0 else moved)


def state_of_place(rows, place):  # noqa: ARG001 - as the other
    """Return the state of a row of a dense table."""
    return np.int64(place)


def state_of_row(rows, place):
    """Return the state of a row of a sparse table."""
    return rows[place].state


def collector(actions: int, sets: int, sparse: bool) -> Any:
    """Compose `collect(table, places, changes, ends, cursor)`: list the changes in marked rows.

    It continues from the cursor until `changes` is full; it is complete when the cursor's owner equals the number of
    owners. `ends` (owners,) receives where the changes of each owner end. `places` has room for the rows of a strip:
    listing them first allows prefetching.
    """
    state_of, words = state_of_row if sparse else state_of_place, rows_of_strip(actions) // MARKS

    def list_places(marks, first, stop, places):
        found = 0
        for word in range(first, stop):
            left = marks[word]
            while left != 0:
                places[found] = np.uint64(word * MARKS + lowest_bit(left))
                left &= left - np.uint64(1)
                found += 1
        return found

    def collect_row(rows, before, place, changes, count):
        row, kept = rows[place], before[place]
        for a in range(actions):
            visits = visited(row, kept, a, actions, sets)
            if visits != 0:
                change = changes[count]
                change.state = state_of(rows, place)
                change.action = a
                change.visits = visits
                for s in range(sets):
                    k = s * actions + a
                    change.moved[s] = (row.values[k] - kept.values[k]) * visits
                count += 1
        return count

    def collect(table, places, changes, ends, cursor):
        rows, marks, before = table.rows, table.marks, table.before
        owner, part, count = cursor[OWNER], cursor[PART], cursor[COUNT]
        while owner < len(ends):
            first = (part * len(ends) + owner) * words
            if first < len(marks):
                found = list_places(marks, first, min(first + words, len(marks)), places)
                if count + found * actions > len(changes):
                    break
                for i in range(min(found, AHEAD)):
                    fetch_ahead(rows, places[i])
                    fetch_ahead(before, places[i])
                for i in range(found):
                    ahead = places[min(i + AHEAD, found - 1)]
                    fetch_ahead(rows, ahead)
                    fetch_ahead(before, ahead)
                    count = collect_row(rows, before, places[i], changes, count)
                part += 1
            else:
                ends[owner] = count
                owner += 1
                part = 0
        cursor[OWNER], cursor[PART], cursor[COUNT] = owner, part, count

    return collect


def strip_merger(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - dense tables only
    """Compose `merge(table, changes, spans, moved, visits, outcomes) -> count`: merge changes of one owner's strips.

    `spans` (replicas, 3) has where the changes of each replica begin and end, and a scratch column. `moved` and
    `visits`, the sums of a strip, are zeros before and after.
    """
    strip = rows_of_strip(actions)

    def next_strip(changes, spans):
        first = np.int64(-1)
        for r in range(len(spans)):
            if spans[r, 0] < spans[r, 1]:
                state = np.int64(changes[spans[r, 0]].state)
                first = state if first < 0 or state < first else first
        return first // strip * strip if first >= 0 else first

    def merge(table, changes, spans, moved, visits, outcomes):
        count, first = np.uint64(0), next_strip(changes, spans)
        while first >= 0:
            begin = np.uint64(first)
            for r in range(len(spans)):
                i, end = np.uint64(spans[r, 0]), np.uint64(spans[r, 1])
                while i < end and changes[i].state < first + strip:
                    change = changes[i]
                    place = np.uint64(change.state)
                    fetch_ahead(table.rows, place)
                    k = (place - begin) * np.uint64(actions) + np.uint64(change.action)
                    visits[k] += change.visits
                    for s in range(sets):
                        moved[k * np.uint64(sets) + np.uint64(s)] += change.moved[s]
                    i += np.uint64(1)
                spans[r, 2] = i
            for r in range(len(spans)):
                for i in range(np.uint64(spans[r, 0]), np.uint64(spans[r, 2])):
                    place, a = np.uint64(changes[i].state), np.uint64(changes[i].action)
                    k = (place - begin) * np.uint64(actions) + a
                    made = visits[k]
                    if made != 0:  # otherwise merged with another replica's change already
                        kept = table.before[place] if is_marked(table, place) else table.rows[place]
                        outcome = outcomes[count]
                        outcome.state = changes[i].state
                        outcome.action = changes[i].action
                        outcome.visits = kept.visits[a] + made
                        for s in range(sets):
                            sums = k * np.uint64(sets) + np.uint64(s)
                            outcome.moved[s] = kept.values[np.uint64(s * actions) + a] + moved[sums] / made
                            moved[sums] = 0
                        visits[k] = 0
                        count += np.uint64(1)
                spans[r, 0] = spans[r, 2]
            first = next_strip(changes, spans)
        return np.int64(count)

    return merge


def taker(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - dense tables only
    """Compose `take(rows, outcomes)`: apply the merged values."""

    def take(rows, outcomes):
        for i in range(np.uint64(0), np.uint64(len(outcomes))):
            outcome = outcomes[i]
            row, a = rows[np.uint64(outcome.state)], np.uint64(outcome.action)
            row.visits[a] = outcome.visits
            for s in range(sets):
                row.values[np.uint64(s * actions) + a] = outcome.moved[s]

    return take


def counter(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - sparse tables only
    """Compose `count(table, changes)`: return an upper bound on the rows that are new to a table."""

    def count(table, changes):
        unknown, last = 0, np.int64(-1)
        for i in range(len(changes)):
            state = np.int64(changes[i].state)
            if state != last:  # changes of one state are adjacent
                unknown += 1 if find_known(table, state) < 0 else 0
            last = state
        return unknown

    return count


def merger(actions: int, sets: int, sparse: bool) -> Any:  # noqa: ARG001 - sparse tables only
    """Compose `merge(table, changes, places)`: sum the changes in the table's rows, then divide by their visits.

    Each replica has its rows in an order of its own, so every replica merges all changes.
    """

    def merge(table, changes, places):
        rows, before = table.rows, table.before
        for i in range(len(changes)):
            place = find_or_add(table, np.int64(changes[i].state))
            mark(table, place)
            places[i] = place
            a = changes[i].action
            rows[place].visits[a] = before[place].visits[a]
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
            visits = np.int32(rows[place].visits[a] - before[place].visits[a])
            if visits != 0:  # otherwise merged with another replica's change already
                for s in range(sets):
                    k = s * actions + a
                    rows[place].values[k] = before[place].values[k] + rows[place].values[k] / visits
                before[place].visits[a] = rows[place].visits[a]

    return merge
