"""Launching work over indices: in Python and on threads the same, function after function."""

import numpy as np
import pytest

from velocirl.engine.compiler.columns import Shared
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.targets.indexing import index_loop
from velocirl.engine.targets.launching import INDICES_PER_THREAD, Bound, CPULauncher, PythonLauncher, Work, by_row

COUNT = 2 * INDICES_PER_THREAD + 3


def count(i, r, place, numbers):
    numbers[i] += i + place


def double(i, r, place, numbers):
    numbers[i] *= 2.0


def add_row(row, amount):
    row[0] += amount[0]


def add_twice(head, row, amount):
    row[0] += head * amount[0]


LAUNCHERS = {
    "python": PythonLauncher,
    "one thread": lambda: CPULauncher(1, learning_translator("test")),
    "threads": lambda: CPULauncher(3, learning_translator("test")),
}
every_launcher = pytest.mark.parametrize("launcher", LAUNCHERS.values(), ids=LAUNCHERS.keys())


@every_launcher
def test_all_of_one_function_comes_before_the_next(launcher):
    numbers = np.zeros(COUNT)
    run = launcher().launch([Work(count, (numbers,)), Work(double, (numbers,))], COUNT)
    run(5)
    np.testing.assert_array_equal(numbers, 2.0 * (np.arange(COUNT) + 5))
    run(0)
    np.testing.assert_array_equal(numbers, 2.0 * (3.0 * np.arange(COUNT) + 10))


@every_launcher
def test_nothing_beyond_the_count_is_touched(launcher):
    numbers = np.zeros(COUNT)
    launcher().launch([Work(count, (numbers,))], 4)(1)
    assert numbers[:6].tolist() == [1, 2, 3, 4, 0, 0]
    assert not numbers[4:].any()


@every_launcher
def test_functions_of_rows_take_columns_and_a_head(launcher):
    rows, amount = np.zeros((5, 1), np.float32), np.array([[1.5]], np.float32)
    columns = rows, Shared(amount)
    works = [Work(by_row(add_row), columns), Work(by_row(add_twice, head=2), columns)]
    launcher().launch(works, 5)(0)
    assert rows[:, 0].tolist() == [4.5] * 5


def test_a_function_of_rows_keeps_its_name():
    assert by_row(add_row).__name__ == "add_row"
    assert by_row(add_twice, head=2).__name__ == "add_twice"


def test_a_unit_that_is_bound_takes_its_place_among_other_work():
    numbers, translator = np.zeros(8), learning_translator("test")
    unit = bind_unit(index_loop(count), (numbers,), translator)
    CPULauncher(1, translator).launch([Bound(unit), Work(double, (numbers,))], 8)(1)
    np.testing.assert_array_equal(numbers, 2.0 * (np.arange(8) + 1))


def test_few_indices_wake_no_second_thread(monkeypatch):
    from velocirl.engine.targets import team

    monkeypatch.setattr(team, "send", None)
    numbers = np.zeros(COUNT)
    few = 2 * INDICES_PER_THREAD - 1
    CPULauncher(2, learning_translator("test")).launch([Work(count, (numbers,))], few)(0)
    np.testing.assert_array_equal(numbers[:few], np.arange(few))
