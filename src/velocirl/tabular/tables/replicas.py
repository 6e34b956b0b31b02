"""Threads that learn into one table, each in a copy of its own that it exchanges with the others' now and then.

Where a table is small, all threads write to the same few rows, and cores spend more time on passing these to each other
than on learning. So each thread learns in its own copy, and brings what it learnt to the common table after some
thousand steps: a value that went from W0 to W_r by n updates there moves, from what it is by now, as far as it would
have moved if these updates had been made after all others (`caught_up`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.registers import exchange_if, mailbox_write
from velocirl.engine.targets.threads import SPACING, wait_a_moment
from velocirl.tabular.tables.table import Table
from velocirl.tabular.tables.value_table import ValueTable

POWERS = 1024  # of what an update leaves, from the 0th on, that are looked up rather than computed
STEPS_PER_ROW = 16  # that make an exchange worth while: it takes about as long as one step for each row
LEAST_STEPS = 8192
PARTS = 16  # of a table, of which each is exchanged by one thread at a time
LARGEST = 2**22  # bytes of a table that is worth copying: more do not fit into a core's own cache


class Common(NamedTuple):
    """What a thread with a copy of the table needs to exchange it with the others'."""

    table: Table  # that of all
    base: Table  # its own as it was at the last exchange
    powers: NDArray[Any]
    doors: NDArray[np.int64]  # of the parts of the table, the same for all
    first: int  # the part with which it begins


def worth_copying(table: ValueTable) -> bool:
    """Whether threads do better with copies of a table."""
    return not table.sparse and table.counts_visits and table.arrays.rows.nbytes <= LARGEST


def steps_between(table: ValueTable) -> int:
    """The steps of a thread from one exchange to the next."""
    return max(LEAST_STEPS, STEPS_PER_ROW * len(table))


def copy_of(table: Table) -> Table:
    """A table of the same rows."""
    return table._replace(rows=table.rows.copy())


def powers_of(kept: float, sets: int, dtype: Any) -> NDArray[Any]:
    """What n updates leave of the distance to their target, for small n; several sets share the updates."""
    return (kept ** (np.arange(POWERS) / sets)).astype(dtype)


def caught_up(now, before, own, leaves):
    """A value that is `now`, where updates that brought `before` to `own` are made after all else.

    They leave the share `leaves` of the distance to their target, which so is before + (own - before) / (1 - leaves).
    """
    return now + (own - before) - (1 - leaves) * (now - before)


def exchanging(actions: int, sets: int) -> Callable[..., Any]:
    """`exchange(common, table)`: bring what a thread's own table has learnt, and fetch what the others have.

    Threads begin with different parts, so that they hardly ever wait for each other at the door of one.
    """

    def leaves_of(visits, powers):
        return powers[visits] if visits < len(powers) else powers[1] ** visits

    def exchange_row(ours, mine, before, powers):
        for a in range(actions):
            visits = np.int32(mine.visits[a] - before.visits[a])
            for s in range(sets):
                k = s * actions + a
                now = ours.values[k]
                if mine.values[k] != before.values[k]:
                    now = caught_up(now, before.values[k], mine.values[k], leaves_of(visits, powers))
                    ours.values[k] = now
                mine.values[k] = now
                before.values[k] = now
            total = np.int32(ours.visits[a] + visits)
            if visits != 0:
                ours.visits[a] = total
            mine.visits[a] = total
            before.visits[a] = total

    def exchange_part(common, table, start, stop):
        for place in range(np.uint64(start), np.uint64(stop)):
            ours, mine, before = common.table.rows[place], table.rows[place], common.base.rows[place]
            differs = np.int32(0)
            for a in range(actions):
                differs |= np.int32((mine.visits[a] ^ before.visits[a]) | (ours.visits[a] ^ before.visits[a]))
            for k in range(sets * actions):
                moved = mine.values[k] != before.values[k] or ours.values[k] != before.values[k]
                differs |= np.int32(moved)
            if differs != 0:
                exchange_row(ours, mine, before, common.powers)

    def exchange(common, table):
        count = len(table.rows)
        for i in range(PARTS):
            part = (common.first + i) % PARTS
            enter(common.doors, part)
            exchange_part(common, table, count * part // PARTS, count * (part + 1) // PARTS)
            leave(common.doors, part)

    return exchange


def enter(doors, part):
    """Wait until nobody else exchanges this part."""
    looks = 0
    while exchange_if(doors, part * SPACING, 0, 1) != 0:
        looks += 1
        wait_a_moment(looks)


def leave(doors, part):
    """Let the next one in."""
    mailbox_write(doors, part * SPACING, 0)
