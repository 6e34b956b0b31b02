"""Functions of an index and of rows over a range: the same in plain Python and compiled."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.targets.indexing import index_loop, row_loop


def note(i, r, place, numbers, more):
    numbers[i, 0] = i
    numbers[i, 1] = r
    numbers[i, 2] = place
    numbers[i, 3] = more


def weigh(row, into):
    into[0] = 2.0 * row[0]


def doubled(x):
    return 2.0 * x


class Head(NamedTuple):
    """What a function that takes a head is given first: functions and numbers."""

    twice: Any
    outputs: int


def weigh_by(head, row, into):
    into[0] = head.twice(row[0]) * head.outputs


@pytest.fixture(params=["python", "compiled"])
def bound(request):
    """A loop with its arguments, plain or compiled."""

    def bound(loop, arguments):
        if request.param == "python":
            return lambda *places: loop(arguments, *places)
        return bind_unit(loop, arguments, learning_translator("test"))

    return bound


def test_a_function_of_an_index_is_called_for_a_range_with_the_row_in_its_block(bound):
    numbers = np.full((6, 4), -1.0)
    assert bound(index_loop(note), (numbers, 7))(2, 5, 9) == 0
    assert numbers[2:5].tolist() == [[2, 0, 9, 7], [3, 1, 9, 7], [4, 2, 9, 7]]
    assert (numbers[[0, 1, 5]] == -1).all()


def test_no_range_is_nothing(bound):
    numbers = np.full((6, 4), -1.0)
    bound(index_loop(note), (numbers, 7))(3, 3, 0)
    assert (numbers == -1).all()


@pytest.mark.parametrize(("loop", "factor"), [(row_loop(weigh), 2), (row_loop(weigh_by, Head(doubled, 5)), 10)])
def test_a_function_of_rows_is_called_for_a_range(bound, loop, factor):
    rows, into = np.arange(6, dtype=np.float32)[:, None], np.zeros((6, 1), np.float32)
    assert bound(loop, (rows, into))(1, 4, 0) == 0
    assert into[:, 0].tolist() == [0, factor, 2 * factor, 3 * factor, 0, 0]
