"""Records: fields, defaults, parameters of single copies, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import velocirl
from velocirl import DefinitionError, bool_, float32, float64, int8, int16, int32, int64, record, uint8
from velocirl.engine.records import FieldType


@record
class Plant:
    pressure: float32 = 1.5
    level: float64 = 2.5
    mode: int8 = -3
    ticks: int64 = 2**40
    open: bool_ = True
    board: uint8[2, 3] = ((1, 2, 3), (4, 5, 6))
    tail: int16[4] = 7
    free: int32


@record
class Scaled:
    scale: float32 = 2.0
    shift: float32[2] = (0.0, 1.0)


def scale(state, params, action, rng):
    state.value = params.scale * state.value + params.shift[1]
    return state.value, False


def test_fields_keep_their_order_types_and_shapes():
    assert Plant.fields == ("pressure", "level", "mode", "ticks", "open", "board", "tail", "free")
    types = [Plant.dtype[name].base for name in Plant.fields]
    assert types == [np.float32, np.float64, np.int8, np.int64, np.bool_, np.uint8, np.int16, np.int32]
    assert [Plant.dtype[name].shape for name in Plant.fields] == [(), (), (), (), (), (2, 3), (4,), ()]


def test_every_field_lies_where_the_processor_likes_it():
    for name in Plant.fields:
        dtype, offset = Plant.dtype.fields[name][:2]
        assert offset % dtype.base.alignment == 0
    assert Plant.dtype.itemsize % 8 == 0


def test_rows_are_filled_with_the_defaults():
    rows = Plant.rows(3)
    np.testing.assert_array_equal(rows["pressure"], np.full(3, 1.5, np.float32))
    np.testing.assert_array_equal(rows["ticks"], [2**40] * 3)
    np.testing.assert_array_equal(rows["board"], [[[1, 2, 3], [4, 5, 6]]] * 3)
    np.testing.assert_array_equal(rows["tail"], np.full((3, 4), 7))
    np.testing.assert_array_equal(rows["free"], 0)


@given(some.lists(some.floats(-1e6, 1e6, width=32), min_size=1, max_size=8))
def test_values_are_taken_row_by_row(values):
    np.testing.assert_array_equal(Plant.rows(len(values), {"pressure": values})["pressure"], np.float32(values))


def test_rows_of_array_fields_may_be_given_for_all_or_for_each():
    np.testing.assert_array_equal(Plant.rows(2, {"tail": [1, 2, 3, 4]})["tail"], [[1, 2, 3, 4]] * 2)
    each = [[1, 2, 3, 4], [5, 6, 7, 8]]
    np.testing.assert_array_equal(Plant.rows(2, {"tail": each})["tail"], each)


def test_only_float64_fields_ask_for_double_precision():
    assert Plant.double
    assert not Scaled.double


def test_annotations_may_be_strings():
    """As in a module with `from __future__ import annotations`."""

    class Lazy:
        speed: "float32" = 2.0
        cells: "int8[3]"

    lazy = record(Lazy)
    assert lazy.fields == ("speed", "cells")
    assert lazy.dtype["cells"].shape == (3,)
    assert lazy.rows(1)["speed"][0] == 2.0


def test_a_module_with_lazy_annotations_runs(tmp_path, run_script):
    script = tmp_path / "lazy.py"
    script.write_text(
        """
from __future__ import annotations
import velocirl
from velocirl import Box, Discrete, Environment, float32, int32, record

@record
class State:
    value: float32
    steps: int32[2]

def reset(state, params, rng):
    state.value = 0.25
    state.steps[1] = 0

def step(state, params, action, rng):
    state.steps[1] += 1
    state.value *= 2
    return state.value, state.steps[1] == 3

def observe(state, params, observation):
    observation[0] = state.value

environment = Environment("Lazy-v0", state=State, observation=Box(0, 9, (1,)), action=Discrete(2),
                          reset=reset, step=step, observe=observe)
env = velocirl.make(environment)
env.reset(seed=1)
print([env.step(0)[:3][0].tolist() for _ in range(3)])
"""
    )
    assert run_script(script).strip() == "[[0.5], [1.0], [2.0]]"


def test_numpy_scalar_types_are_fields_too():
    """They are what a type checker takes the names for."""

    class Plain:
        speed: np.float32 = 1.0
        count: np.int64

    assert record(Plain).dtype == np.dtype([("speed", np.float32), ("count", np.int64)], align=True)


def test_a_field_type_is_a_cast():
    assert int32(2.9) == 2
    assert type(int32(2.9)) is np.int32
    assert float32(0.1) == np.float32(0.1)


def annotated(annotation, **defaults):
    return type("State", (), {"__annotations__": {"field": annotation}, **defaults})


@pytest.mark.parametrize(
    ("annotation", "advice"),
    [(float, "float32"), (int, "int32 or int64"), (bool, "bool_"), (str, "an integer code"), (list, r"int8\[9\]")],
)
def test_pythons_own_types_are_refused_with_what_to_write(annotation, advice):
    with pytest.raises(DefinitionError, match=f"record State .*field 'field' is annotated .*write .*{advice}"):
        record(annotated(annotation))


@pytest.mark.parametrize("shape", [0, -1, (3, 0), 2.5, ()])
def test_a_shape_that_is_none_is_refused(shape):
    with pytest.raises(DefinitionError, match="is not a field type"):
        float32[shape]


def test_arrays_of_arrays_are_refused():
    with pytest.raises(DefinitionError, match="is not a field type"):
        float32[3][3]


def test_a_record_without_fields_is_refused():
    with pytest.raises(DefinitionError, match=r"record Empty .* has no fields"):
        record(type("Empty", (), {}))


def test_private_fields_are_refused():
    with pytest.raises(DefinitionError, match="'_hidden' may not start with an underscore"):
        record(type("State", (), {"__annotations__": {"_hidden": float32}}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (int8, 300),
        (uint8, -1),
        (int32, 2.5),
        (float32, 1e300),
        (float32, float("nan")),
        (float32, float("inf")),
        (float32, "fast"),
        (float32[2], (1.0, 2.0, 3.0)),
        (int8[2], (1, 200)),
        (bool_, 2),
    ],
)
def test_a_default_that_does_not_fit_its_field_is_refused(field, value):
    with pytest.raises(ValueError, match=r"State\.field"):
        record(annotated(field, field=value))


@pytest.mark.parametrize(("field", "value"), [(int32, 10.0), (float32, 3), (bool_, 1), (int8, -128), (uint8, 255)])
def test_a_default_of_another_type_that_fits_is_taken(field, value):
    assert record(annotated(field, field=value)).rows(1)["field"][0] == value


def test_parameters_of_one_copy_change_just_that_copy(define, apply):
    environment = define(params=Scaled, step=scale)
    state = apply(environment, params={"scale": np.array([2.0, 3.0, 2.0])}, value=[5.0, 5.0, 5.0])
    np.testing.assert_array_equal(state["value"], [11.0, 16.0, 11.0])


def test_parameters_of_one_copy_change_its_physics_in_a_built_in_environment():
    gravity = np.array([9.8, 9.8, 20.0, 9.8])
    usual = velocirl.make_vec("CartPole-v1", 4, seed=1)
    heavy = velocirl.make_vec("CartPole-v1", 4, seed=1, params={"gravity": gravity})
    np.testing.assert_array_equal(usual.reset()[0], heavy.reset()[0])
    for _ in range(5):
        ours, theirs = usual.step(np.ones(4, int))[0], heavy.step(np.ones(4, int))[0]
    same = (ours == theirs).all(axis=1)
    np.testing.assert_array_equal(same, [True, True, False, True])


def test_parameters_survive_automatic_resets():
    envs = velocirl.make_vec("Counter-v0", 2, seed=1, params={"length": np.array([2, 3])})
    envs.reset()
    ends = [envs.step(np.zeros(2, int))[2].tolist() for _ in range(6)]
    assert [row[0] for row in ends] == [False, True] * 3
    assert [row[1] for row in ends] == [False, False, True] * 2


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"gravty": 9.8}, "CartPole-v1: Params has no field 'gravty': did you mean 'gravity'"),
        ({"colour": 1.0}, "CartPole-v1: Params has no field 'colour'; its fields are gravity, cart_mass"),
        ({"gravity": [1.0, 2.0, 3.0]}, r"CartPole-v1: Params.gravity has shape \(3,\).*one for each of 2 copies"),
        ({"gravity": float("nan")}, "CartPole-v1: Params.gravity must be finite numbers"),
        ({"gravity": [9.8, float("inf")]}, "CartPole-v1: Params.gravity must be finite numbers"),
        ({"gravity": "strong"}, "CartPole-v1: Params.gravity must be a number, uniform"),
        ({"gravity": None}, "CartPole-v1: Params.gravity must be finite numbers, got None"),
    ],
)
def test_wrong_parameters_are_refused_by_name(params, message):
    with pytest.raises(ValueError, match=message):
        velocirl.make_vec("CartPole-v1", 2, params=params)


def test_an_environment_without_parameters_says_so():
    with pytest.raises(ValueError, match="TicTacToe-v1: Params has no field 'size'; it has none"):
        velocirl.make_vec("TicTacToe-v1", 2, params={"size": 4})


def test_names_say_what_they_are():
    assert repr(float32) == "float32"
    assert repr(int8[3, 3]) == "int8[3, 3]"
    assert repr(Scaled) == "Record(Scaled: scale, shift)"
    assert isinstance(int8[9], FieldType)
