"""Lanes: what rows make of a function side by side is what each makes of it alone."""

from math import exp

import numpy as np
import pytest

from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed, Local, Shared, Summed, Timed, read_only
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.lanes import LANES, in_lanes, lane_loop
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.records import with_attributes
from velocirl.engine.targets.indexing import row_loop

STEP = np.dtype(
    [("advantage", "f4"), ("unused", "f4"), ("action", "i4", 2), ("found", "f4", 3), ("error", "f4"), ("on", "i1")],
    align=True,
)
SETTINGS = np.dtype([("scale", "f4"), ("limit", "f4")])
SUMS = np.dtype([("total", "f8"), ("count", "f8")])
ROWS = 150


def learn(head, output, row, timed, settings, rng, gradient, sums):
    """Branches, a place that is known only at run time, a draw, a call, and something written everywhere."""
    drawn = random.uniform(rng)
    chosen = output[row.action[1]] * settings.scale
    if row.on == 1 and chosen > settings.limit:
        chosen = exp(-chosen) + drawn
        sums.count += 1.0
    for k in range(len(output)):
        gradient[k] = output[k] - chosen if k == row.action[0] else output[k] * head
    row.found[2] = chosen
    row.error = row.advantage - chosen
    timed.error = row.error
    sums.total += row.error


def read(row, sums):
    """Nothing of a row is written."""
    sums.total += row.advantage + row.action[0]


def by_strings(row, sums):
    row["error"] = 2.0 * row["advantage"]
    sums.total += row["error"]


def columns(seed=0):
    generator = np.random.default_rng(seed)
    rows, timed = np.zeros(2 * ROWS, STEP), np.zeros((ROWS, 3), STEP)
    rows["advantage"], rows["unused"] = generator.normal(size=2 * ROWS), 7.0
    rows["action"], rows["on"] = generator.integers(0, 4, (2 * ROWS, 2)), generator.integers(0, 2, 2 * ROWS)
    rows["found"], timed["error"] = 3.0, -1.0
    return (
        Local(read_only(generator.normal(size=(ROWS, 4)).astype(np.float32))),
        Indexed(rows, generator.permutation(2 * ROWS)[:ROWS].astype(np.int32)),
        Timed(timed),
        Shared(np.array([(2.0, 0.3)], SETTINGS)),
        random.streams(seed, ROWS),
        Local(np.full((ROWS, 6), 9.0, np.float32)[:, 1:5]),
        Summed(np.array([(10.0, 5.0)], SUMS)),
    )


def by_attributes(column):
    """As plain Python needs records."""
    if isinstance(column, tuple):
        return type(column)(*(by_attributes(part) for part in column))
    return with_attributes(column) if column.dtype.names else column


def memory(column):
    """All that a function may have written to."""
    array = column[0] if isinstance(column, tuple) else column
    return array if array.base is None or array.dtype.names else np.asarray(array.base)


@pytest.mark.parametrize(("first", "stop"), [(0, 1), (3, 3), (5, 5 + LANES), (2, 4 + LANES), (0, ROWS)])
def test_rows_in_lanes_are_rows_one_by_one(first, stop):
    expected, given = columns(), columns()
    row_loop(learn, 0.5)(tuple(map(by_attributes, expected)), first, stop, 2)
    lanes = in_lanes(learn, given)
    assert lanes is not None
    bind_unit(lane_loop(learn, 0.5), lanes, learning_translator("test"))(first, stop, 2)
    for one, other in zip(given, expected, strict=True):
        mine, theirs = memory(one), memory(other)
        for name in mine.dtype.names or (None,):
            part, wanted = (mine, theirs) if name is None else (mine[name], theirs[name])
            np.testing.assert_allclose(part, wanted, rtol=2e-6, atol=2e-6, err_msg=f"{type(one).__name__} {name}")
    if stop > first:
        assert expected[-1].rows["count"][0] > 5.0 or stop - first == 1


def test_a_unit_adds_to_what_is_there():
    given = columns()
    lanes = in_lanes(read, (given[1], given[-1]), fixed=("action",))
    unit = bind_unit(lane_loop(read), lanes, learning_translator("test"))
    rows, index = given[1]
    for _ in range(2):
        unit(0, ROWS)
    drawn = rows[index]
    total = np.float64(drawn["advantage"] + drawn["action"][:, 0]).sum()
    np.testing.assert_allclose(given[-1].rows["total"], 10.0 + 2 * total, rtol=1e-6)


def test_fields_that_are_named_by_strings():
    given = columns()
    lanes = in_lanes(by_strings, (given[1], given[-1]))
    bind_unit(lane_loop(by_strings), lanes, learning_translator("test"))(0, ROWS)
    rows, index = given[1]
    np.testing.assert_array_equal(rows["error"][index], 2.0 * rows["advantage"][index])
    assert in_lanes(by_strings, (given[1],))[0].rows.dtype.names == ("advantage", "error")


def test_what_a_function_only_reads_is_read_only():
    _, rows, timed, settings, _, gradient, sums = columns()
    seen = in_lanes(read, (rows, sums), fixed=("action",))
    assert seen[0].rows.dtype.names == ("advantage", "action")
    assert not seen[0].rows.flags.writeable
    assert in_lanes(read, (rows, sums))[0].rows.flags.writeable  # what has several numbers may be written to
    written = in_lanes(learn, (rows, timed, settings, gradient))
    assert [one[0].flags.writeable for one in written] == [True, True, False, True]
    assert "unused" not in written[0].rows.dtype.names


@pytest.mark.parametrize("shape", [(8, 17), (8, 2, 3), (8,)])
def test_rows_that_are_no_lanes(shape):
    assert in_lanes(read, (np.zeros(shape, np.float32),)) is None
