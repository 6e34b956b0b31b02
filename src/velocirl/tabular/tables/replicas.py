"""Threads with copies of one table, which they exchange with a common table from time to time.

If a table is small, all threads write to the same few rows, and cores spend more time on passing cache lines than on
learning. So each thread updates its own copy, and brings its changes to the common table after some thousand steps. A
value that n updates took from W0 to W_r moves, from its current common value, as far as these updates would have moved
it after all others (`caught_up`).
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

POWERS = 1024  # precomputed powers of what an update leaves, from the 0th on
STEPS_PER_ROW = 16  # makes an exchange worthwhile: it takes about as long as one step for each row
LEAST_STEPS = 8192
PARTS = 16  # of a table; each is exchanged by one thread at a time
LARGEST = 2**22  # bytes of a table that is worth copying: a larger one does not fit into a core's own cache


class Common(NamedTuple):
    """Arguments of a thread that exchanges its copy of the table with the common one."""

    table: Table  # the common table
    base: Table  # this thread's own as it was at the last exchange
    powers: NDArray[Any]
    doors: NDArray[np.int64]  # locks of the table's parts, shared by all threads
    first: int  # the part this thread begins with


def worth_copying(table: ValueTable) -> bool:
    """Return whether threads are faster with copies of a table."""
    return not table.sparse and table.counts_visits and table.arrays.rows.nbytes <= LARGEST


def steps_between(table: ValueTable) -> int:
    """Return the steps of a thread between two exchanges."""
    return max(LEAST_STEPS, STEPS_PER_ROW * len(table))


def copy_of(table: Table) -> Table:
    """Return a table with copied rows."""
    return table._replace(rows=table.rows.copy())


def powers_of(kept: float, sets: int, dtype: Any) -> NDArray[Any]:
    """Return the fraction that n updates leave of the distance to their target, for small n; sets share the updates."""
    return (kept ** (np.arange(POWERS) / sets)).astype(dtype)


def caught_up(now, before, own, leaves):
    """Return the value after updates that took `before` to `own`, applied to its current value `now`.

    They leave the fraction `leaves` of the distance to their target, which is therefore before + (own - before) / (1 -
    leaves).
    """
    return now + (own - before) - (1 - leaves) * (now - before)


def exchanging(actions: int, sets: int) -> Callable[..., Any]:
    """Compose `exchange(common, table)`: bring a thread's changes to the common table, and fetch the others' changes.

    Threads begin with different parts, so that they hardly ever wait for each other's locks.
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
    """Acquire the lock of a part."""
    looks = 0
    while exchange_if(doors, part * SPACING, 0, 1) != 0:
        looks += 1
        wait_a_moment(looks)


def leave(doors, part):
    """Release the lock of a part."""
    mailbox_write(doors, part * SPACING, 0)
