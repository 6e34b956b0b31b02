"""Units: called by address from Python and from compiled functions, compiled once, and telling what went wrong."""

import numpy as np
import pytest

from velocirl.engine import units
from velocirl.engine.compiling import cpu_translator, learning_translator
from velocirl.engine.frames import type_of
from velocirl.engine.units import bind_unit, call_unit, unit_address


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
        done += call_unit(unit[0], unit[1], i, i + 1, place)
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


def test_a_compiled_function_calls_a_unit_by_its_address(unit, numbers):
    driver = bind_unit(drive, (np.array([unit.address, unit.frame.address]),), translator(), disjoint=False)
    assert driver(0, 10, 10) == 10
    np.testing.assert_array_equal(numbers[:10], np.arange(10, dtype=np.float32))
    with pytest.raises(ValueError, match="thirteen"):
        driver(10, 20, 10)
    assert numbers[12:15].tolist() == [12.0, 0.0, 0.0]


def test_a_unit_of_known_content_is_compiled_once(unit, monkeypatch):
    monkeypatch.setattr(units, "_compile", None)
    asked = []
    other = bind_unit(multiples, (np.zeros(3, np.float32),), translator(), before=lambda: asked.append(1))
    assert other.address == unit.address
    assert asked == []
    assert other(1, 2, 1) == 1


def test_other_types_precisions_and_manners_are_other_units(monkeypatch):
    """All of those that differ in their content; the numbers of an array are none."""
    keys = []
    monkeypatch.setattr(units, "_LOADED", {})
    monkeypatch.setattr(units, "find_code", lambda name: keys.append(name) or b"")
    monkeypatch.setattr(units.llvm.ObjectFileRef, "from_data", lambda code: None)
    engine = units.cpu_target.target_context.codegen()._engine._ee
    monkeypatch.setattr(engine, "add_object_file", lambda code: None, raising=False)
    monkeypatch.setattr(engine, "finalize_object", lambda: None, raising=False)
    monkeypatch.setattr(engine, "get_function_address", lambda name: len(keys), raising=False)
    kinds = [np.zeros(3, np.float32), np.zeros((3, 3), np.float32), np.zeros(3), np.zeros((3, 3), np.float32)[:, 0]]
    ways = [translator(), translator(double=True), learning_translator("test")]
    for kind in kinds:
        for way in ways:
            for disjoint in (True, False):
                unit_address(multiples, type_of((kind,)), way, disjoint=disjoint)
    assert len(set(keys)) == len(kinds) * len(ways) * 2
    unit_address(multiples, type_of((np.zeros(70, np.float32),)), cpu_translator("another", double=False))
    assert len(keys) == len(kinds) * len(ways) * 2


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
    assert unit.frame.arguments[0][:5].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
