"""Table of action values: a row for every state or, if there are too many, for every visited state.

A dense table has the row of state s at index s. A sparse one appends a row on the first visit of a state, and finds it
by an open-addressing hash. The word of each slot holds the row's index and 32 bits of the hash, so that a search reads
hardly any row but the right one. Rows never move, so that indices stay valid while the table grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.registers import exchange_if, fetch_add, mailbox_read
from velocirl.engine.random import GOLDEN, MASK

ROWS_USED = 0  # offset in `counts`
FULLEST = 0.7  # fraction of the slots that may be taken; beyond it searches get long
FIRST_ROWS = 1024  # initial rows of a sparse table
NOBODY = -1  # the state of an unused row
MARKS = 64  # rows whose marks are the bits of one word


class Table(NamedTuple):
    """Arrays of a table, as compiled functions access them."""

    rows: NDArray[Any]  # (capacity,) records: values (sets * actions,); state, if sparse; visits (actions,)
    slots: NDArray[np.int64]  # (power of 2,) of a sparse table: hash << 32 | place + 1, or 0
    counts: NDArray[np.int64]
    # For replicas that learn separately (else a single element each): a bit for each row that may have changed since
    # the last merge, (capacity / MARKS,), and the old content of such rows, (capacity,). Entries of other rows are
    # undefined.
    marks: NDArray[np.uint64]
    before: NDArray[Any]


def row_type(
    actions: int, *, sets: int = 1, sparse: bool = False, visits: bool = False, dtype: str = "float32"
) -> np.dtype[Any]:
    """Return the record type of a row."""
    state = [("state", np.int64)] if sparse else []
    counted = [("visits", np.int32, (actions,))] if visits else []
    return np.dtype([*state, ("values", np.dtype(dtype), (sets * actions,)), *counted])


def mark(table, place):
    """Mark a row that may change, and keep its current content; later calls until the next merge do nothing."""
    place = np.uint64(place)
    if not is_marked(table, place):
        table.marks[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))
        table.before[place] = table.rows[place]


def is_marked(table, place):
    """Return whether a row may have changed since the last merge."""
    return (table.marks[place >> np.uint64(6)] >> (place & np.uint64(63))) & np.uint64(1) != 0


def finder(sparse: bool, shared: bool = False) -> Callable[..., Any]:
    """Return `find(table, state) -> place`, the index of the state's row; a sparse table adds a missing row.

    If the table is `shared`, several threads may add rows at the same time. There must be room for added rows.
    """
    if not sparse:
        return find_dense
    return find_shared if shared else find_or_add


def find_dense(table, state):  # noqa: ARG001 - as the others
    """Return the index of a state's row in a dense table."""
    return np.uint64(state)


def scattered(state):
    """Return a state's hash, which scatters neighboring numbers."""
    word = int(np.uint64(state))
    word = ((word ^ (word >> 32)) * GOLDEN) & MASK
    return word ^ (word >> 29)


def begin_search(table, state):
    """Return the slot at which the search for a state begins, and the part of its hash that slots hold."""
    word = scattered(state)
    return np.int64(word & np.uint64(len(table.slots) - 1)), np.int64(word >> np.uint64(33))


def search(table, state, slot, tag):
    """Find the first slot that is empty or the state's own. Returns its content and index."""
    held = mailbox_read(table.slots, slot)
    while held != 0 and not (held >> 32 == tag and table.rows[place_of(held)].state == state):
        slot = (slot + 1) & (len(table.slots) - 1)
        held = mailbox_read(table.slots, slot)
    return held, slot


def place_of(held):
    """Return the index of the row that a slot holds."""
    return np.uint64((held & 0xFFFFFFFF) - 1)


def find_known(table, state):
    """Return the index of a state's row in a sparse table, or -1 if it has none."""
    held, _ = search(table, state, *begin_search(table, state))
    return np.int64(-1) if held == 0 else np.int64(place_of(held))


def find_or_add(table, state):
    """Return the index of a state's row, adding it if needed; only one thread may call this at a time."""
    slot, tag = begin_search(table, state)
    held, slot = search(table, state, slot, tag)
    if held == 0:
        place = table.counts[ROWS_USED]
        table.counts[ROWS_USED] = place + 1
        table.rows[np.uint64(place)].state = state
        held = tag << 32 | place + 1
        table.slots[slot] = held
    return place_of(held)


def find_shared(table, state):
    """Return the index of a state's row, while other threads search and add too.

    A row is complete before its slot is set. If two threads add the same state, the second one's row stays unused.
    """
    slot, tag = begin_search(table, state)
    held, slot = search(table, state, slot, tag)
    if held == 0:
        mine = fetch_add(table.counts, ROWS_USED, 1)
        table.rows[np.uint64(mine)].state = state
        own = tag << 32 | mine + 1
        while held == 0:
            if exchange_if(table.slots, slot, 0, own) == 0:
                held = own
            else:
                held, slot = search(table, state, slot, tag)
        if held != own:
            table.rows[np.uint64(mine)].state = NOBODY
    return place_of(held)


def enter_rows(table, first, stop):
    """Enter existing rows into the slots; there must be enough slots, and no state may occur twice."""
    for place in range(first, stop):
        state = table.rows[np.uint64(place)].state
        if state != NOBODY:
            slot, tag = begin_search(table, state)
            held, slot = search(table, state, slot, tag)
            if held == 0:
                table.slots[slot] = tag << 32 | place + 1
