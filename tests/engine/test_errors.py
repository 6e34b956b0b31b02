"""What a person is told when an environment is wrong: the environment, the function, the line, and what to write."""

import math
import random as python_random
import re

import numba
import numpy as np
import pytest
from toys.environments import drifting, observe

import velocirl
from velocirl import Box, DefinitionError, Discrete

TABLE = {1: 2.0}


def environment(**changes):
    return drifting("Wrong-v0", **changes)


def misspelt_field(state, params, action, rng):
    state.postion += 1.0
    return 1.0, False


def misspelt_field_that_is_written(state, params, action, rng):
    state.postion = 1.0
    return 1.0, False


def reward_alone(state, params, action, rng):
    return 1.0


def number_as_flag(state, params, action, rng):
    return 1.0, 0


def text_as_reward(state, params, action, rng):
    return "much", False


def division_by_nothing(state, params, action, rng):
    return state.position / state.count, False


def undefined_name(state, params, action, rng):
    return nothing_here * 1.0, False  # noqa: F821


def dictionary(state, params, action, rng):
    return TABLE[1], False


def context_manager(state, params, action, rng):
    with np.errstate():
        return 1.0, False


def unknown_function(state, params, action, rng):
    return math.fsum((1.0, 2.0)), False


def foreign_randomness(state, params, action, rng):
    return python_random.gauss(0.0, 1.0), False


def numpy_randomness(state, params, action, rng):
    return np.random.normal(), False  # noqa: NPY002


def printed_array(state, params, action, rng):
    print(rng)
    return 1.0, False


def object_mode(state, params, action, rng):
    with numba.objmode():
        print({})
    return 1.0, False


def helper(value):
    return TABLE[value]


def wrong_in_a_helper(state, params, action, rng):
    return helper(1), False


WRONG_STEPS = [
    (misspelt_field, "no field 'postion'", "did you mean 'position'", 1),
    (misspelt_field_that_is_written, "no field 'postion'", "did you mean 'position'", 1),
    (reward_alone, "returns 1.0", "return reward, terminated", 0),
    (number_as_flag, "terminated as 0", "return a bool", 0),
    (text_as_reward, "reward 'much'", "return a number", 0),
    (division_by_nothing, "reward", "must be finite", 0),
    (undefined_name, "name 'nothing_here' is not defined", "", 1),
    (dictionary, "uses TABLE, a dict", "tuples of numbers", 1),
    (context_manager, "uses `with`, which has no compiled form", "leave it out", 1),
    (unknown_function, "uses math.fsum", "if/for/while", 1),
    (printed_array, "needs Python's interpreter", "numbers and text can be printed", 1),
    (object_mode, "needs Python's interpreter", 'device="python"', 0),
]


@pytest.mark.parametrize(
    ("function", "what", "instead", "line"), WRONG_STEPS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_wrong_step_is_told_with_its_line_and_a_way_out(function, what, instead, line):
    with pytest.raises(DefinitionError) as caught:
        velocirl.make_vec(environment(step=function), 4)
    message = str(caught.value)
    assert message.startswith("Wrong-v0: step ")
    assert what in message
    assert instead in message
    assert f"{__file__}:{function.__code__.co_firstlineno + line}" in message
    assert "nopython" not in message  # numba's own words stay behind the debug switch


@pytest.mark.parametrize("function", [foreign_randomness, numpy_randomness])
def test_randomness_that_no_seed_decides_is_refused(function):
    with pytest.raises(DefinitionError, match=r"Wrong-v0: \w+ uses \w+.*use velocirl\.random with rng"):
        velocirl.make_vec(environment(step=function), 4)


def test_a_fault_in_a_helper_names_the_line_of_the_helper():
    with pytest.raises(DefinitionError, match="uses TABLE") as caught:
        velocirl.make_vec(environment(step=wrong_in_a_helper), 4)
    assert f"{__file__}:{helper.__code__.co_firstlineno + 1}" in str(caught.value)


def test_the_compilers_own_message_is_shown_on_request(monkeypatch):
    with pytest.raises(DefinitionError) as caught:
        velocirl.make_vec(environment(step=dictionary), 4)
    assert caught.value.__cause__ is None
    monkeypatch.setenv("VELOCIRL_DEBUG", "1")
    with pytest.raises(DefinitionError) as caught:
        velocirl.make_vec(environment(step=dictionary), 4)
    assert "numba" in type(caught.value.__cause__).__module__


def writes_beyond(state, params, observation):
    observation[1] = state.position


def writes_nothing(state, params, observation):
    pass


def writes_too_much(state, params, observation):
    observation[0] = state.position * 100


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (writes_beyond, "IndexError: index 1 is out of bounds"),
        (writes_nothing, r"leaves observation\[0\] unwritten"),
        (writes_too_much, r"into observation\[0\], whose space goes from -5.0 to 5.0"),
    ],
)
def test_an_observation_outside_its_space_is_told(function, what):
    with pytest.raises(DefinitionError, match=f"Wrong-v0: observe .*{what}"):
        velocirl.make_vec(environment(observe=function), 4)


def returns_a_list(state, params, observation):
    return [state.position]


def binds_anew(state, params, observation):
    observation = [state.position]  # noqa: F841


@pytest.mark.parametrize("space", [Box(-5, 5, (1,)), Box(0, 255, (1,), np.uint8), Discrete(3)], ids=str)
@pytest.mark.parametrize(
    ("function", "what"),
    [
        (returns_a_list, r"returns \[.*\]; it writes into observation, observation\[0\] = \.\.\., and returns nothing"),
        (
            binds_anew,
            r"gives the name observation to something else.*write observation\[0\] = \.\.\., or ",
        ),
    ],
)
def test_an_observation_that_is_not_written_is_told_with_the_line(function, what, space):
    with pytest.raises(DefinitionError, match=f"Wrong-v0: observe {what}") as caught:
        velocirl.make_vec(environment(observe=function, observation=space), 4)
    assert f"{__file__}:{function.__code__.co_firstlineno + 1}: " in str(caught.value)


def test_whole_numbers_that_stay_unwritten_are_found():
    with pytest.raises(DefinitionError, match=r"leaves observation\[0\] unwritten"):
        velocirl.make_vec(environment(observe=writes_nothing, observation=Box(0, 255, (1,), np.uint8)), 4)


def gives_back_the_row(state, params, observation):
    observation[0] = state.position
    return observation


def test_who_writes_may_give_back_the_row():
    assert velocirl.make_vec(environment(observe=gives_back_the_row), 2, device="python").reset(seed=0)


def returns_the_state(state, params, rng):
    state.position, state.count = 0.0, 0
    return state


def returns_a_mask(state, params, mask):
    return [1, 1]


def test_reset_and_legal_write_and_return_nothing():
    with pytest.raises(DefinitionError, match=r"reset returns the state; it writes into state, state\.position = "):
        velocirl.make_vec(environment(reset=returns_the_state), 4)
    with pytest.raises(DefinitionError, match=r"legal returns \[1, 1\]; it writes into mask, mask\[0\] = "):
        velocirl.make_vec(environment(legal=returns_a_mask), 4)


def test_a_wrong_environment_leaves_nothing_in_the_cache_and_is_told_again():
    for _ in range(2):
        with pytest.raises(DefinitionError, match="widen the space"):
            velocirl.make_vec(environment(observe=writes_too_much), 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"step": lambda state, params, action: (1.0, False)},
            r"step must take \(state, params, action, rng\), but takes",
        ),
        ({"state": int}, "state= must be a class decorated with @record"),
        ({"observation": 5}, "observation= must be a Box, Discrete or MultiDiscrete"),
        ({"action": Discrete(3, start=1)}, "starts at 1; start at 0"),
        ({"action": Box(-1, 1, (2, 2))}, "must be a flat Box"),
        ({"max_steps": 0}, "max_steps must be a positive number"),
        ({"report": ("postion",)}, "did you mean 'position'"),
        ({"legal": observe, "action": Box(-1, 1, (1,))}, "masks Discrete or MultiDiscrete"),
        ({"reset": None}, "reset= must be a plain function"),
    ],
)
def test_a_wrong_definition_is_refused_where_it_is_written(changes, message):
    with pytest.raises(DefinitionError, match=rf"Wrong-v0: .*{message}"):
        environment(**changes)


@pytest.mark.parametrize("name", ["NoVersion", "", "Spaces In It-v0", 3])
def test_an_id_must_have_a_version(name):
    with pytest.raises(DefinitionError, match=re.escape("is not of the form Name-v0")):
        drifting(name)
