"""Units: called by address from Python and from compiled functions, compiled once and late, telling what went wrong."""

import threading

import numpy as np
import pytest

from velocirl.engine.compiler import units
from velocirl.engine.compiler.compiling import cpu_translator, learning_translator
from velocirl.engine.compiler.registers import mailbox_read, relax
from velocirl.engine.compiler.units import bind_unit, call_unit, compile_waiting


def multiples(arguments, first, stop, place):
    (numbers,) = arguments
    for i in range(first, stop):
        if i == 13:
            raise ValueError("thirteen", 13)
        numbers[i] = 0.1 * i * place
    return stop - first


def drive(arguments, first, stop, place):
    """Call another unit once for each index."""
    (unit,) = arguments
    done = 0
    for i in range(first, stop):
        done += call_unit(unit, i, i + 1, place)
    return done


def shift(arguments, first, stop, place):
    source, target = arguments
    for i in range(first, stop):
        target[i] = source[i] + place


def translator(double=False):
    return cpu_translator("test", double=double)


@pytest.fixture
def numbers():
    return np.zeros(20, np.float32)


@pytest.fixture
def unit(numbers):
    return bind_unit(multiples, (numbers,), translator())


def test_a_unit_goes_through_a_range_and_gives_back_what_its_function_does(unit, numbers):
    assert unit(2, 5, 10) == 3
    plain = np.zeros_like(numbers)
    assert multiples((plain,), 2, 5, 10) == 3
    np.testing.assert_array_equal(numbers, plain)
    assert numbers[2:6].tolist() == [2.0, 3.0, 4.0, 0.0]
    assert unit(0, 0) == 0


def test_what_a_unit_raises_is_raised_and_the_next_call_is_as_if_nothing_had_been(unit, numbers):
    for _ in range(3):
        with pytest.raises(ValueError, match="thirteen") as caught:
            unit(12, 15, 1)
        assert caught.value.args == ("thirteen", 13)
        assert unit(14, 16, 1) == 2
    np.testing.assert_array_equal(numbers[12:16], np.float32(0.1) * np.float32([12, 0, 14, 15]))


def test_numbers_of_numpy_are_taken_and_nothing_else_is(unit, numbers):
    assert unit(np.int64(2), np.int32(5), True) == 3
    for wrong in (2.0, "2", None):
        with pytest.raises(TypeError, match="integer"):
            unit(wrong, 5, 1)
    with pytest.raises(OverflowError):
        unit(2**70, 5, 1)
    assert unit(-1, 0, 1) == 1  # what the check for errors takes for none


def wait_for_word(arguments, first, stop, place):
    (mailbox,) = arguments
    while mailbox_read(mailbox, 0) == 0:
        relax()
    return mailbox[0]


def test_other_threads_run_while_a_unit_does():
    mailbox = np.zeros(1, np.int64)
    waiting = bind_unit(wait_for_word, (mailbox,), translator(), disjoint=False)
    compile_waiting()
    threading.Timer(0.05, lambda: mailbox.__setitem__(0, 7)).start()
    assert waiting(0, 1) == 7


def test_a_compiled_function_calls_a_unit_by_its_address(unit, numbers):
    driver = bind_unit(drive, (unit.frame,), translator(), disjoint=False)
    assert driver(0, 10, 10) == 10
    np.testing.assert_array_equal(numbers[:10], np.arange(10, dtype=np.float32))
    with pytest.raises(ValueError, match="thirteen"):
        driver(10, 20, 10)
    assert numbers[12:15].tolist() == [12.0, 0.0, 0.0]


def test_a_unit_of_known_content_is_compiled_once(unit, monkeypatch):
    unit(0, 1)
    monkeypatch.setattr(units, "_compile", None)
    asked = []
    other = bind_unit(multiples, (np.zeros(3, np.float32),), translator(), before=lambda: asked.append(1))
    assert asked == []
    assert other(1, 2, 1) == 1


def test_other_types_precisions_and_manners_are_other_units(monkeypatch):
    """All of those that differ in their content; the numbers of an array are none."""
    keys = []
    monkeypatch.setattr(units, "_LOADED", {})
    monkeypatch.setattr(units, "find_code", lambda name: keys.append(name) or b"")
    monkeypatch.setattr(units, "_load", lambda key, code: units._LOADED.setdefault(key, 1))
    kinds = [np.zeros(3, np.float32), np.zeros((3, 3), np.float32), np.zeros(3), np.zeros((3, 3), np.float32)[:, 0]]
    ways = [translator(), translator(double=True), learning_translator("test")]
    for kind in kinds:
        for way in ways:
            for disjoint in (True, False):
                bind_unit(multiples, (kind,), way, disjoint=disjoint)
    assert len(set(keys)) == len(kinds) * len(ways) * 2
    bind_unit(multiples, (np.zeros(70, np.float32),), cpu_translator("another", double=False))
    assert len(keys) == len(kinds) * len(ways) * 2


@pytest.fixture
def nothing_known(monkeypatch):
    """As in a new process with an empty cache."""
    compile_waiting()  # what others have left
    monkeypatch.setattr(units, "_LOADED", {})
    monkeypatch.setattr(units, "find_code", lambda name: None)
    monkeypatch.setattr(units, "keep_code", lambda name, code: None)


def adding(amount):
    def add(arguments, first, stop, place):
        for i in range(first, stop):
            arguments[0][i] += amount
        return 0

    return add


def test_all_that_were_bound_are_compiled_together_when_the_first_is_called(nothing_known, monkeypatch):
    shared, share_out = [], units.share_out
    monkeypatch.setattr(units, "share_out", lambda work, count, most: shared.append(count) or share_out(work, count, 2))
    numbers = np.zeros(4)
    bound = [bind_unit(adding(amount), (numbers,), translator()) for amount in (1.0, 10.0, 100.0, 1.0)]
    assert shared == []
    for unit in bound:
        unit(0, 2)
    assert shared == [3]  # two are the same
    assert numbers.tolist() == [112.0, 112.0, 0.0, 0.0]


def test_what_nobody_holds_any_more_is_not_compiled(nothing_known, monkeypatch):
    bind_unit(adding(1.0), (np.zeros(4),), translator())
    monkeypatch.setattr(units, "_compile", None)
    compile_waiting()


def not_compilable(arguments, first, stop, place):
    return {"a": 1}["b" if first else 0]


def test_what_cannot_be_compiled_is_explained_once_and_the_others_are_there(nothing_known):
    numbers = np.zeros(4)
    wrong = bind_unit(not_compilable, (numbers,), translator(), explain=lambda error: TypeError("explained"))
    right = bind_unit(adding(1.0), (numbers,), translator())
    driver = bind_unit(drive, (wrong.frame,), translator(), disjoint=False)
    with pytest.raises(TypeError, match="explained"):
        wrong(0, 1)
    right(0, 4)
    assert numbers.tolist() == [1.0] * 4
    for unit in (wrong, driver):
        with pytest.raises(RuntimeError, match="could not be compiled: see the first error"):
            unit(0, 1)


def test_constants_have_the_precision_of_the_unit():
    for double in (False, True):
        numbers = np.zeros(20)
        bind_unit(multiples, (numbers,), translator(double=double))(3, 4, 1)
        assert numbers[3] == (0.1 * 3 if double else np.float32(0.1) * np.float32(3))


def test_arrays_that_overlap_are_seen_to_where_they_may():
    numbers = np.zeros(100, np.int64)
    bind_unit(shift, (numbers[:-1], numbers[1:]), translator(), disjoint=False)(0, 99, 1)
    np.testing.assert_array_equal(numbers, np.arange(100))


def test_a_unit_keeps_what_its_arguments_lie_in():
    unit = bind_unit(multiples, (np.zeros(20, np.float32),), translator())
    unit(0, 5, 10)
    assert unit._frame.arguments[0][:5].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
