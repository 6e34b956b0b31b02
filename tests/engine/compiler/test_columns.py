"""Columns: the same row for an index in plain Python and compiled, wherever it stands."""

import numpy as np
import pytest

from velocirl.engine.compiler.columns import Fresh, Grouped, Indexed, Local, Ringed, Shared, Timed, rows_at, with_width
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.records import with_attributes
from velocirl.engine.targets.indexing import row_loop

RECORD = np.dtype([("number", np.float32), ("pair", np.float32, 2), ("count", np.int32)])
ROWS = 6


def tell(number, row, record, local, indexed, shared, timed, timed_record, grouped, ringed, fresh, told):
    """Write down what was given; a record, and what is fresh, can be written to."""
    fresh.number += 1.0
    told[0] = number
    told[1] = row[0] + 10.0 * row[1]
    told[2] = record.number
    told[3] = record.pair[1]
    told[4] = local[0]
    told[5] = indexed.number
    told[6] = shared.count
    told[7] = timed[1]
    told[8] = timed_record.number
    told[9] = grouped
    told[10] = ringed.number
    told[11] = fresh.number
    record.count += 1


def columns():
    records = np.zeros(ROWS, RECORD)
    records["number"], records["pair"] = np.arange(ROWS), np.arange(2 * ROWS).reshape(ROWS, 2)
    ring, timed = np.zeros(3 * ROWS, RECORD), np.zeros((ROWS, 4), RECORD)
    ring["number"], timed["number"] = np.arange(3 * ROWS), np.arange(4 * ROWS).reshape(ROWS, 4)
    wide = np.arange(ROWS * 5, dtype=np.float32).reshape(ROWS, 5)
    return (
        np.arange(ROWS, dtype=np.float32) + 0.5,
        wide[:, 1:3],
        records,
        Local(np.arange(100, 103, dtype=np.float32)[:, None]),
        Indexed(records.copy(), np.array([5, 4, 3, 2, 1, 0], np.int32)),
        Shared(np.array([(0, 0, 9)], RECORD)),
        Timed(np.arange(ROWS * 4 * 2, dtype=np.float32).reshape(ROWS, 4, 2)),
        Timed(timed),
        Grouped(np.arange(3, dtype=np.float32) * 100, 2),
        Ringed(ring, np.array([6, 12])),
        Fresh(np.zeros(1, RECORD)),
        np.zeros((ROWS, 12), np.float32),
    )


def by_attributes(column):
    """As plain Python needs records."""
    if isinstance(column, tuple):
        return type(column)(*(by_attributes(part) for part in column))
    return with_attributes(column) if getattr(column, "dtype", None) == RECORD else column


@pytest.fixture(scope="module", params=["python", "compiled"])
def told(request):
    """What is told of rows 2, 3 and 4 as a block, at place 3; and the columns."""
    given = columns()
    if request.param == "python":
        row_loop(tell)(tuple(map(by_attributes, given)), 2, 5, 3)
    else:
        bind_unit(row_loop(tell), given, learning_translator("test"))(2, 5, 3)
    return given[-1], given


def test_an_array_has_a_row_for_each_index(told):
    rows, _ = told
    np.testing.assert_array_equal(rows[2:5, 0], [2.5, 3.5, 4.5])
    np.testing.assert_array_equal(rows[2:5, 1], [11 + 120, 16 + 170, 21 + 220])  # of a part of a wider array
    np.testing.assert_array_equal(rows[2:5, 2], [2, 3, 4])
    np.testing.assert_array_equal(rows[2:5, 3], [5, 7, 9])


def test_a_local_row_is_that_of_the_block(told):
    np.testing.assert_array_equal(told[0][2:5, 4], [100, 101, 102])


def test_an_indexed_row_stands_where_the_index_says(told):
    np.testing.assert_array_equal(told[0][2:5, 5], [3, 2, 1])


def test_a_shared_row_is_the_same_for_all(told):
    np.testing.assert_array_equal(told[0][2:5, 6], [9, 9, 9])


def test_of_a_timed_column_the_row_of_the_place_counts(told):
    np.testing.assert_array_equal(told[0][2:5, 7], [i * 8 + 3 * 2 + 1 for i in (2, 3, 4)])
    np.testing.assert_array_equal(told[0][2:5, 8], [i * 4 + 3 for i in (2, 3, 4)])


def test_a_group_shares_a_row(told):
    np.testing.assert_array_equal(told[0][2:5, 9], [100, 100, 200])


def test_the_newest_group_of_a_ring_begins_where_its_counts_say(told):
    np.testing.assert_array_equal(told[0][2:5, 10], [6 + 2, 6 + 3, 6 + 4])


def test_a_fresh_record_is_zero_each_time(told):
    np.testing.assert_array_equal(told[0][2:5, 11], [1, 1, 1])


def test_a_record_is_written_where_it_stands_and_no_other_row_is_touched(told):
    rows, given = told
    np.testing.assert_array_equal(given[2]["count"], [0, 0, 1, 1, 1, 0])
    assert not rows[[0, 1, 5]].any()


def test_a_row_of_numbers_is_a_view():
    table = np.zeros((3, 2))
    (row,) = rows_at((table,), 1, 0, 0)
    row[0] = 5.0
    assert table[1, 0] == 5.0


def turn(source, into):
    for k in range(len(source)):
        into[k] = -source[k]


@pytest.mark.parametrize("python", [True, False], ids=["python", "compiled"])
def test_rows_of_few_numbers_say_how_many(python):
    source, into = np.arange(24, dtype=np.float32).reshape(4, 6)[:, 1:4], np.zeros((4, 5), np.float32)
    given = with_width(Indexed(source, np.array([3, 0], np.int32))), with_width(into[:, 2:])
    assert [np.asarray(given[0].rows).dtype, given[1].dtype] == [np.dtype([("numbers", np.float32, (3,))])] * 2
    if python:
        row_loop(turn)(given, 0, 2, 0)
    else:
        bind_unit(row_loop(turn), given, learning_translator("test"))(0, 2)
    np.testing.assert_array_equal(into[:2, 2:], -source[[3, 0]])
    assert not into[2:].any()
    assert not into[:, :2].any()


def test_rows_of_many_numbers_and_records_stay_as_they_are():
    for column in (np.zeros((3, 17)), np.zeros(3), np.zeros((3, 2, 2)), Local(np.zeros(3, RECORD))):
        assert with_width(column) is column
