"""Rows of a sparse table: found, added and kept, by one thread and by several, against a dict."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.engine.targets.threads import run_together
from velocirl.tabular.tables import table as rooms
from velocirl.tabular.tables.table import (
    FULLEST,
    NOBODY,
    ROWS_USED,
    Table,
    begin_search,
    enter_rows,
    find_dense,
    find_known,
    find_or_add,
    find_shared,
    finder,
    row_type,
    scattered,
)

states = st.integers(0, 2**62 - 1)
NO_MARKS = np.zeros(1, np.uint64), np.zeros(1, row_type(2))


def empty(slots=64, rows=None):
    """A table for as many rows as its slots are good for, whose records plain Python can read."""
    rows = np.zeros(int(FULLEST * slots) if rows is None else rows, row_type(2, sparse=True))
    return Table(rows.view(np.recarray), np.zeros(slots, np.int64), np.zeros(8, np.int64), *NO_MARKS)


def compiled(find, table, wanted):
    """`run(table, states, places)`: one after another."""

    def find_each(table, states, places):
        for i in range(len(states)):
            places[i] = find(table, states[i])

    places = np.empty(len(wanted), np.int64)
    arguments = (table, np.asarray(wanted, np.int64), places)
    return compile_loop(find_each, arguments, cpu_translator("table", double=False), before=lambda: None)


def find_compiled(find, table, wanted):
    wanted = np.asarray(wanted, np.int64)
    places = np.empty(len(wanted), np.int64)
    table = table._replace(rows=table.rows.view(np.ndarray))
    compiled(find, table, wanted)(table, wanted, places)
    return places


def colliding(count, slots):
    """Different states whose search begins at the same slot."""
    table = empty(slots)
    home = begin_search(table, 1)[0]
    found = [state for state in range(1, 100 * slots) if begin_search(table, state)[0] == home]
    return found[:count]


def test_each_kind_of_table_has_its_way():
    assert finder(sparse=False) is find_dense
    assert finder(sparse=False, shared=True) is find_dense
    assert finder(sparse=True) is find_or_add
    assert finder(sparse=True, shared=True) is find_shared


def test_a_dense_row_lies_at_its_state():
    table = Table(np.zeros(10, row_type(2)), np.zeros(1, np.int64), np.zeros(8, np.int64), *NO_MARKS)
    assert [int(find_dense(table, state)) for state in (0, 3, 9)] == [0, 3, 9]


@pytest.mark.parametrize("find", [find_or_add, find_shared])
@given(st.lists(states, max_size=40))
def test_rows_are_found_as_by_a_dict(find, wanted):
    table, known = empty(), {}
    for state in wanted:
        expected = known.setdefault(state, len(known))
        assert find(table, state) == expected
        assert table.rows[expected]["state"] == state
    assert table.counts[ROWS_USED] == len(known)
    for state, place in known.items():
        assert find_known(table, state) == place


@settings(max_examples=30)
@given(st.lists(st.sampled_from([0, 1, 2, 3, 64, 128, 2**32, 2**33, 2**61, 2**62 - 1]) | states, max_size=44))
def test_compiled_search_is_that_of_plain_python(wanted):
    plain, table, shared = empty(), empty(), empty()
    expected = [int(find_or_add(plain, state)) for state in wanted]
    assert find_compiled(find_or_add, table, wanted).tolist() == expected
    assert find_compiled(find_shared, shared, wanted).tolist() == expected
    assert find_compiled(find_known, table, wanted).tolist() == expected
    for other in (table, shared):
        np.testing.assert_array_equal(other.slots, plain.slots)
        np.testing.assert_array_equal(other.rows["state"], plain.rows["state"])
        np.testing.assert_array_equal(other.counts, plain.counts)


def test_states_that_collide_keep_rows_of_their_own():
    wanted = colliding(20, slots=64)
    assert len(wanted) == 20
    table = empty()
    assert [int(find_or_add(table, state)) for state in wanted] == list(range(20))
    assert [int(find_known(table, state)) for state in reversed(wanted)] == list(reversed(range(20)))
    held = np.flatnonzero(table.slots)
    home = int(begin_search(table, wanted[0])[0])
    assert sorted((held - home) % 64) == list(range(20))  # one beside the other, around the end of the slots


def test_what_was_never_met_has_no_place_in_a_full_table():
    table = empty()
    met = list(range(1000, 1000 + len(table.rows)))
    places = [int(find_or_add(table, state)) for state in met]
    assert places == list(range(len(met)))
    assert table.counts[ROWS_USED] == len(table.rows) == 44
    assert all(find_known(table, state) == -1 for state in range(200))
    assert table.counts[ROWS_USED] == 44  # looking adds nothing
    assert [int(find_or_add(table, state)) for state in met] == places


def test_state_0_is_a_state_like_any_other():
    """The slots and rows of an empty table are zeros, too."""
    table = empty()
    assert find_known(table, 0) == -1
    assert find_or_add(table, 0) == 0
    assert find_known(table, 0) == 0
    assert find_known(table, 64) == -1


def test_places_stay_where_the_slots_are_more():
    table = empty()
    met = np.random.default_rng(0).integers(0, 2**62, 44)
    places = [int(find_or_add(table, state)) for state in met]
    table.rows["state"][7] = NOBODY
    larger = table._replace(slots=np.zeros(512, np.int64))
    enter_rows(larger, 0, len(met))
    found = [int(find_known(larger, state)) for state in met]
    assert found == [place if place != 7 else -1 for place in places]
    assert np.count_nonzero(larger.slots) == 43


def test_neighbouring_states_are_spread_evenly():
    """Of 2^16 states, numbered in a row or in steps, about as many slots are hit as random numbers would hit."""
    expected = 1 - np.exp(-1)
    for step in (1, 9, 4096, 2**32, 2**40 + 1):
        slots = {scattered(k * step) & 0xFFFF for k in range(2**16)}
        assert len(slots) / 2**16 > 0.9 * expected, step


def test_a_thread_that_comes_second_takes_the_row_of_the_first(monkeypatch):
    """The other one enters the same state between the search and the exchange."""
    table, exchange = empty(), rooms.exchange_if

    def late(array, place, expected, value):
        monkeypatch.setattr(rooms, "exchange_if", exchange)
        assert find_shared(table, 77) == 1  # its row lies after the one that is just being made
        return exchange(array, place, expected, value)

    monkeypatch.setattr(rooms, "exchange_if", late)
    assert find_shared(table, 77) == 1
    assert table.counts[ROWS_USED] == 2
    assert table.rows["state"][:2].tolist() == [NOBODY, 77]
    assert np.count_nonzero(table.slots) == 1


def test_a_thread_that_loses_its_slot_to_another_state_takes_the_next(monkeypatch):
    first, second = colliding(2, slots=64)
    table, exchange = empty(), rooms.exchange_if

    def late(array, place, expected, value):
        monkeypatch.setattr(rooms, "exchange_if", exchange)
        assert find_shared(table, second) == 1
        return exchange(array, place, expected, value)

    monkeypatch.setattr(rooms, "exchange_if", late)
    assert find_shared(table, first) == 0
    assert [int(find_known(table, state)) for state in (first, second)] == [0, 1]
    assert NOBODY not in table.rows["state"]


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_that_add_at_the_same_time_agree(threads):
    """All want the same states, in different orders, or in the same one, in which they meet at every state."""
    count = 50_000
    for same in (True, False, True, False):
        table = empty(2**18, rows=threads * count)
        table = table._replace(rows=table.rows.view(np.ndarray))
        wanted = [np.random.default_rng(0 if same else thread).permutation(count) * 7 for thread in range(threads)]
        places = [np.empty(count, np.int64) for _ in range(threads)]
        run = compiled(find_shared, table, wanted[0])
        run_together([[(run, (table, mine, found))] for mine, found in zip(wanted, places, strict=True)])
        where = dict(zip(wanted[0].tolist(), places[0].tolist(), strict=True))
        for mine, found in zip(wanted, places, strict=True):
            assert [where[state] for state in mine.tolist()] == found.tolist()
        used = table.rows["state"][: table.counts[ROWS_USED]]
        assert sorted(used[used != NOBODY].tolist()) == [7 * k for k in range(count)]
        assert table.rows["state"][list(where.values())].tolist() == list(where)
        assert np.count_nonzero(table.slots) == count


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 4 * 4),
        ({"dtype": "float64"}, 8 * 4),
        ({"sets": 2}, 2 * 4 * 4),
        ({"sparse": True}, 8 + 4 * 4),
        ({"sparse": True, "visits": True}, 8 + 4 * 4 + 4 * 4),
    ],
    ids=str,
)
def test_the_memory_of_a_row(options, size):
    assert row_type(4, **options).itemsize == size
