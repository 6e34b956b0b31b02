"""Mistakes of beginners, each told with its line and what to write instead."""

import math

import numpy as np
import pytest

import velocirl
from velocirl import Box, DefinitionError, Discrete, Environment, float32, int8, int32, random, record
from velocirl.engine.checking.syntax import formatted_text

COUNT = 0
LOG = []
TABLE = np.zeros(3)


@record
class Room:
    temperature: float32
    history: float32[3]
    small: int8
    count: int32


def reset(room, params, rng):
    room.temperature = random.uniform(rng, 10, 30)
    room.history[:] = 0.0
    room.small = 0
    room.count = 0


def step(room, params, heat, rng):
    return 0.0, False


def observe(room, params, observation):
    observation[0] = room.temperature


def thermostat(**changes):
    defaults = {"state": Room, "observation": Box(-100, 100, (1,)), "action": Box(-1, 1, (1,)), "max_steps": 50}
    functions = {"reset": reset, "step": step, "observe": observe}
    return Environment("Mistaken-v0", **{**defaults, **functions, **changes})


def array_added(room, params, heat, rng):
    room.temperature += 3.0 * heat
    return 0.0, False


def array_assigned(room, params, heat, rng):
    room.temperature = heat
    return 0.0, False


def array_compared(room, params, heat, rng):
    if room.history > 0.0:
        room.temperature = 0.0
    return 0.0, False


def array_in_a_function(room, params, heat, rng):
    room.temperature = math.sin(room.history)
    return 0.0, False


def array_as_a_whole_number(room, params, heat, rng):
    room.count = int(heat)
    return 0.0, False


def array_as_reward(room, params, heat, rng):
    return -abs(heat), False


def array_as_end(room, params, heat, rng):
    return 0.0, heat > 0.5


def array_made_here(room, params, heat, rng):
    twice = room.history * 2.0
    return twice, False


def number_into_an_array(room, params, heat, rng):
    room.history = heat[0]
    return 0.0, False


def list_into_an_array(room, params, heat, rng):
    room.history = [0.0, 0.0, 0.0]
    return 0.0, False


def new_array_into_an_array(room, params, heat, rng):
    room.history = np.zeros(3, np.float32)
    return 0.0, False


def list_into_a_number(room, params, heat, rng):
    room.temperature = [1.0]
    return 0.0, False


def index_of_a_number(room, params, heat, rng):
    room.temperature[0] = 1.0
    return 0.0, False


def index_of_a_number_that_is_read(room, params, heat, rng):
    room.history[0] += room.temperature[0]
    return 0.0, False


def global_assigned(room, params, heat, rng):
    global COUNT
    COUNT += 1
    return 0.0, False


def global_without_saying_so(room, params, heat, rng):
    COUNT += 1  # noqa: F823, F841
    return 0.0, False


def global_array_written(room, params, heat, rng):
    TABLE[0] += 1.0
    return 0.0, False


def global_list(room, params, heat, rng):
    LOG.append(1.0)
    return 0.0, False


def f_string(room, params, heat, rng):
    print(f"it is {room.temperature}")
    return 0.0, False


def formatted(room, params, heat, rng):
    text = f"{room.temperature:.2f}"  # noqa: F841
    return 0.0, False


def made_text(room, params, heat, rng):
    print("it is " + str(room.temperature))
    return 0.0, False


def generator(room, params, heat, rng):
    return sum(one * 2.0 for one in room.history), False


def caught(room, params, heat, rng):
    try:
        share = 1.0 / room.temperature
    except ZeroDivisionError:
        share = 0.0
    return share, False


def imported(room, params, heat, rng):
    import math

    return math.sin(1.0), False


def starred(room, params, heat, rng):
    first, *_ = room.history
    return first, False


def deleted(room, params, heat, rng):
    text = 1.0
    del text
    return 0.0, False


def walrus(room, params, heat, rng):
    if (now := room.temperature) > 100.0:
        return now, False
    return 0.0, False


def list_of_several_kinds(room, params, heat, rng):
    room.temperature = [1.0, (2.0, 3.0)][room.count][0] if room.count > 5 else 0.0
    return 0.0, False


def clipped(room, params, heat, rng):
    room.temperature = np.clip(room.temperature, 10, 30)
    return 0.0, False


def method_of_rng(room, params, heat, rng):
    room.temperature = rng.normal(0.0, 1.0)
    return 0.0, False


def as_in_gymnasium(room, params, heat, rng):
    return room.temperature, 0.0, False, False, {}


def too_large(room, params, heat, rng):
    room.small = 200
    return 0.0, False


def grown_too_large(room, params, heat, rng):
    room.small += 100
    return 0.0, False


def too_large_in_time(room, params, heat, rng):
    room.small = room.small * 2 + 1
    return 0.0, False


MISTAKES = [
    (array_added, "uses heat, an array of 1 number, as a number; write heat[0]", 1),
    (array_assigned, "uses heat, an array of 1 number, as a number; write heat[0]", 1),
    (array_compared, "uses room.history, an array of 3 numbers, as a number; write room.history[0]", 1),
    (array_in_a_function, "uses room.history, an array of 3 numbers, as a number; write room.history[0]", 1),
    (array_as_a_whole_number, "uses heat, an array of 1 number, as a number; write heat[0]", 1),
    (array_as_reward, "uses heat, an array of 1 number, as a number; write heat[0]", 1),
    (array_as_end, "uses heat, an array of 1 number, as a number; write heat[0]", 1),
    (array_made_here, "returns an array in the place of a number; write `return x[0], x[0] > limit`", 2),
    (number_into_an_array, "history is an array of 3 numbers and is written by its elements, history[0] = ...", 1),
    (list_into_an_array, "or history[:] = ... for all of them", 1),
    (new_array_into_an_array, "or history[:] = ... for all of them", 1),
    (list_into_a_number, "temperature is one number, and an array is written into it", 1),
    (index_of_a_number, "uses room.temperature[0], and room.temperature is one number; write room.temperature", 1),
    (index_of_a_number_that_is_read, "and room.temperature is one number; write room.temperature", 1),
    (
        global_assigned,
        "changes COUNT, a variable of the module; what changes from step to step is kept in the state",
        2,
    ),
    (global_without_saying_so, "changes COUNT, a variable of the module; what changes from step to step is kept in", 1),
    (
        global_array_written,
        "writes into TABLE, an array of the module; what changes from step to step is kept in the",
        1,
    ),
    (global_list, "uses LOG, a list of the module, which has no compiled form; use a tuple of numbers, or a field", 1),
    (f_string, 'uses an f-string, which has no compiled form; print("name", value) prints text and numbers', 1),
    (formatted, 'uses an f-string, which has no compiled form; print("name", value) prints text and numbers', 1),
    (made_text, 'uses text made of numbers, which has no compiled form; print("name", value) prints', 1),
    (generator, "uses a generator, which has no compiled form; write a `for` loop", 1),
    (caught, "uses try/except, which has no compiled form; test with `if` before what may fail", 1),
    (imported, "uses an import, which has no compiled form; write it at the top of the file", 1),
    (starred, "uses a starred name, which has no compiled form; name the elements, x[0] and x[1]", 1),
    (deleted, "uses del, which has no compiled form; leave it out", 2),
    (walrus, "uses `:=`, which has no compiled form; assign in a line before", 1),
    (list_of_several_kinds, "uses a list, which has no compiled form; use a tuple of numbers, or an array field", 1),
    (clipped, "uses np.clip on a number, which has no compiled form; write min(max(x, low), high)", 1),
    (method_of_rng, "where that is rng, write random.normal(rng), with `from velocirl import random`", 1),
    (as_in_gymnasium, "write `return reward, terminated`; `observe` writes the observation, and `max_steps` trunc", 0),
    (too_large, "200 does not fit small, an int8 from -128 to 127, and would be wrapped around in compiled code", 1),
    (grown_too_large, "200 does not fit small, an int8 from -128 to 127", 1),
    (too_large_in_time, "255 does not fit small, an int8 from -128 to 127", 1),
]


@pytest.mark.parametrize(("function", "message", "line"), MISTAKES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_mistake_is_told_with_its_line_and_what_to_write(function, message, line):
    with pytest.raises(DefinitionError) as found:
        velocirl.make_vec(thermostat(step=function), 2)
    told = str(found.value)
    assert told.startswith("Mistaken-v0: step ")
    assert message in told
    assert f"{__file__}:{function.__code__.co_firstlineno + line}: " in told
    assert "nopython" not in told


def loud_helper(value):
    text = f"{value}"  # noqa: F841
    return value


def through_a_helper(room, params, heat, rng):
    return loud_helper(room.temperature), False


def test_a_mistake_in_a_helper_is_told_for_the_function_that_calls_it():
    with pytest.raises(DefinitionError, match="Mistaken-v0: step uses an f-string") as found:
        velocirl.make_vec(thermostat(step=through_a_helper), 2)
    assert f"{__file__}:{loud_helper.__code__.co_firstlineno + 1}: " in str(found.value)


def explaining(room, params, heat, rng):
    if room.temperature > 1000.0:
        raise ValueError(f"it is {room.temperature}")
    return 0.0, False


def test_text_of_an_exception_is_nobody_s_output():
    with np.errstate(all="ignore"):
        assert velocirl.make_vec(thermostat(step=explaining), 2, device="python").reset(seed=0)
    assert formatted_text(explaining) is None


def index_of_a_choice(room, params, action, rng):
    room.temperature = action[0]
    return 0.0, False


def test_a_choice_has_no_index():
    with pytest.raises(DefinitionError, match=r"uses action\[0\], and action is one number; write action\n"):
        velocirl.make_vec(thermostat(step=index_of_a_choice, action=Discrete(2)), 2)


def record_made(room, params, rng):
    room = Room(temperature=20.0)  # noqa: F841


def test_a_record_is_written_field_by_field():
    with pytest.raises(DefinitionError, match=r"a record is written field by field, state\.temperature = "):
        velocirl.make_vec(thermostat(reset=record_made), 2)


def array_into_an_observation(room, params, observation):
    observation[0] = room.history


def test_an_array_is_no_element_of_an_observation():
    with pytest.raises(DefinitionError, match=r"observe uses room\.history, an array of 3 numbers, as a number"):
        velocirl.make_vec(thermostat(observe=array_into_an_observation), 2)


def wide_arithmetic(room, params, heat, rng):
    more = room.small + 100
    room.small = 100 - room.small
    return float(more > 127), False


def test_narrow_numbers_are_computed_with_as_compiled_code_does():
    rewards = {}
    for device in ("python", "cpu"):
        fleet = velocirl.make_vec(thermostat(step=wide_arithmetic), 2, seed=0, device=device)
        fleet.reset(seed=0)
        rewards[device] = [fleet.step(np.zeros((2, 1), np.float32))[1].tolist() for _ in range(2)]
    assert rewards["python"] == rewards["cpu"] == [[0.0, 0.0], [1.0, 1.0]]


def test_what_does_not_fit_is_refused_wherever_python_runs():
    fleet = velocirl.make_vec(thermostat(step=grown_too_large), 1, device="python")
    fleet.reset(seed=0)
    fleet.step(np.zeros((1, 1), np.float32))
    with pytest.raises(OverflowError, match="200 does not fit small"):
        fleet.step(np.zeros((1, 1), np.float32))


def test_a_field_may_be_another_field():
    rows = velocirl.make_vec(thermostat(), 2, device="python").copies.state
    rows[0].history[:] = (1.0, 2.0, 3.0)
    rows[1].history = rows[0].history
    assert rows[1].history.tolist() == [1.0, 2.0, 3.0]
