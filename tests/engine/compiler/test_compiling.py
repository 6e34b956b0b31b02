"""Environments as users write them: in scripts, modules, functions and notebook cells; and how they are compiled."""

import linecache
import sys
import types
from textwrap import dedent

import numpy as np
import pytest

import velocirl
from velocirl import Box, Discrete, Environment, MultiDiscrete, bool_, float32, int8, int32, random, record

# The environment of the README, as a person writes it into a script or a notebook cell.
THERMOSTAT = """
import velocirl
from velocirl import Box, Environment, float32, random, record


@record
class Room:
    temperature: float32
    outside: float32


def reset(room, _, rng):
    room.temperature = random.uniform(rng, 10, 30)
    room.outside = random.uniform(rng, -10, 15)


def step(room, _, heat, rng):
    room.temperature += 0.1 * (room.outside - room.temperature) + 3.0 * heat[0] + 0.1 * random.normal(rng)
    return -abs(room.temperature - 21), False


def observe(room, _, observation):
    observation[0] = (room.temperature - 21) / 10
    observation[1] = room.outside / 10


thermostat = Environment("Thermostat-v0", state=Room, observation=Box(-5, 5, (2,)), action=Box(-1, 1, (1,)),
                         max_steps=200, reset=reset, step=step, observe=observe)
"""
REPORT = """
import numpy as np

envs = velocirl.make_vec(thermostat, 4, seed=1)
envs.reset()
for _ in range(3):
    _, rewards, terminated, truncated, _ = envs.step(np.full((4, 1), 0.25))
print(rewards.tolist(), terminated.any(), truncated.any())
"""


def rewards_of(environment, device="cpu", steps=3, copies=4):
    """The rewards of some steps from a seed, as the report above gives them."""
    envs = velocirl.make_vec(environment, copies, seed=1, device=device)
    envs.reset()
    for _ in range(steps):
        rewards = envs.step(np.full(envs.action_space.shape, 0.25 if isinstance(environment.action, Box) else 1))[1]
    return rewards.tolist()


def run_cell(source, name="<cell 1>"):
    """Run source as a notebook does: with a file name that is none, and no way to read the source again."""
    namespace = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), namespace)
    assert linecache.getlines(name) == []
    return namespace


@pytest.fixture(scope="module")
def expected():
    """The thermostat's rewards in plain Python."""
    return rewards_of(run_cell(THERMOSTAT)["thermostat"], "python")


def test_an_environment_in_a_script(tmp_path, run_script, expected):
    script = tmp_path / "my_thermostat.py"
    script.write_text(THERMOSTAT + REPORT)
    rewards, *ends = run_script(script).rsplit(maxsplit=2)
    np.testing.assert_allclose(eval(rewards), expected, rtol=1e-5)
    assert ends == ["False", "False"]


def test_an_environment_in_a_notebook_cell(expected):
    np.testing.assert_allclose(rewards_of(run_cell(THERMOSTAT)["thermostat"]), expected, rtol=1e-5)


def test_an_environment_in_a_module(tmp_path, monkeypatch, expected):
    (tmp_path / "room.py").write_text(THERMOSTAT)
    monkeypatch.syspath_prepend(tmp_path)
    import room

    monkeypatch.delitem(sys.modules, "room")
    np.testing.assert_allclose(rewards_of(room.thermostat), expected, rtol=1e-5)
    assert room.thermostat.source == "room"


def test_an_environment_in_a_function(expected):
    """Everything it uses lies in the closure: records, the random module, constants and helpers."""

    def make(comfort, leak):
        from velocirl import random as chance

        @record
        class Room:
            temperature: float32
            outside: float32

        def flow(room):
            return leak * (room.outside - room.temperature)

        def reset(room, _, rng):
            room.temperature = chance.uniform(rng, 10, 30)
            room.outside = chance.uniform(rng, -10, 15)

        def step(room, _, heat, rng):
            room.temperature += flow(room) + 3.0 * heat[0] + 0.1 * chance.normal(rng)
            return -abs(room.temperature - comfort), False

        def observe(room, _, observation):
            observation[0] = (room.temperature - comfort) / 10
            observation[1] = room.outside / 10

        spaces = {"observation": Box(-9, 9, (2,)), "action": Box(-1, 1, (1,))}
        return Environment("Closure-v0", state=Room, reset=reset, step=step, observe=observe, **spaces)

    np.testing.assert_allclose(rewards_of(make(21, 0.1)), expected, rtol=1e-5)


def test_a_cell_that_is_run_again_gives_the_new_physics(expected):
    changed = run_cell(THERMOSTAT.replace("3.0 * heat[0]", "9.0 * heat[0]"), "<cell 2>")["thermostat"]
    rewards = rewards_of(changed)
    np.testing.assert_allclose(rewards, rewards_of(changed, "python"), rtol=1e-5)
    assert not np.allclose(rewards, expected)
    again = run_cell(THERMOSTAT, "<cell 2>")["thermostat"]
    np.testing.assert_allclose(rewards_of(again), expected, rtol=1e-5)


def test_a_constant_changed_in_a_cell_counts_for_the_next_fleet(define):
    cell = run_cell("GAIN = 2.0\ndef step(state, params, action, rng):\n    return GAIN * 1.0, False\n")
    environment = define(step=cell["step"])
    assert rewards_of(environment) == [2.0] * 4
    cell["GAIN"] = 5.0
    assert rewards_of(environment) == [5.0] * 4


def package_of(tmp_path, monkeypatch, **modules):
    """Write a package `plant` of these modules and import it for this test alone."""
    directory = tmp_path / "plant"
    directory.mkdir()
    for name, source in {"__init__": "", **modules}.items():
        (directory / f"{name}.py").write_text(dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("plant", *(f"plant.{name}" for name in modules)):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)
    import plant.main

    return plant.main


def test_helpers_and_constants_are_reached_through_modules_of_modules(tmp_path, monkeypatch, define):
    main = package_of(
        tmp_path,
        monkeypatch,
        physics="GAIN = 2.0\ndef gain(x):\n    return GAIN * x\n",
        main="""
            import plant.physics

            def step(state, params, action, rng):
                return plant.physics.gain(1.5) + plant.physics.GAIN, False
        """,
    )
    assert rewards_of(define(step=main.step)) == [5.0] * 4


def test_modules_that_import_each_other_are_no_obstacle(tmp_path, monkeypatch, define):
    main = package_of(
        tmp_path,
        monkeypatch,
        physics="import plant\ndef gain(x):\n    return 2.0 * x\n",
        main="""
            import plant
            import plant.physics

            def step(state, params, action, rng):
                return plant.physics.gain(1.5), False
        """,
    )
    assert rewards_of(define(step=main.step)) == [3.0] * 4


def numpy_beside_our_random(state, params, action, rng):
    state.value = np.float32(random.uniform(rng, 2.0, 3.0))
    return np.floor(state.value), False


def test_numpy_and_our_random_may_be_used_in_one_function(define):
    assert rewards_of(define(step=numpy_beside_our_random)) == [2.0] * 4


@record
class Everything:
    value: float32
    board: int8[3, 3]
    flag: bool_
    count: int32
    path: float32[4]


def play(state, params, action, rng):
    row, column = action[0], action[1]
    state.board[row, column] += 1
    state.flag = not state.flag
    state.count += action[2] - 1
    for k in range(len(state.path)):
        state.path[k] += k * 0.5
    total = 0
    for i in range(3):
        for j in range(3):
            total += state.board[i, j]
    state.value = total + sum_of(state.path)
    return state.value if state.flag else -state.value, total == 7


def sum_of(values):
    total = 0.0
    for value in values:
        total += value
    return total


def clear(state, params, rng):
    for i in range(3):
        for j in range(3):
            state.board[i, j] = 0
    for k in range(4):
        state.path[k] = 0.0
    state.flag = False
    state.count = 0
    state.value = 0.0


def look(state, params, observation):
    for i in range(3):
        for j in range(3):
            observation[i, j] = state.board[i, j]


def odd_columns_only(state, params, mask):
    for k in range(8):
        mask[k] = 1
    mask[3] = 0  # the first column
    mask[6 + (1 if state.flag else 0)] = 0


def test_array_fields_multi_discrete_actions_and_observations_of_two_dimensions(define):
    environment = define(
        state=Everything,
        reset=clear,
        step=play,
        observe=look,
        legal=odd_columns_only,
        observation=Box(0, 9, (3, 3), np.int32),
        action=MultiDiscrete([3, 3, 2]),
    )
    fleets = [velocirl.make_vec(environment, 20, seed=3, device=device) for device in ("cpu", "python")]
    for fleet in fleets:
        fleet.reset()
        fleet.run_randomly(6)
    compiled, plain = (np.asarray(fleet.copies.state) for fleet in fleets)
    for field in Everything.fields:
        np.testing.assert_array_equal(compiled[field], plain[field], err_msg=field)
    np.testing.assert_array_equal(compiled["board"].sum(axis=(1, 2)), 6)
    assert compiled["board"][:, :, 0].sum() == 0  # the mask forbids the first column
    np.testing.assert_array_equal(compiled["path"], [[0.0, 3.0, 6.0, 9.0]] * 20)
    np.testing.assert_array_equal(fleets[0].copies.observation, compiled["board"])
    fleets[0].run_randomly(1)
    assert fleets[0].copies.terminated.all()
    assert (fleets[0].copies.final_observation.sum(axis=(1, 2)) == 7).all()
    assert fleets[0].copies.observation.sum() == 0


def halve(state, params, action, rng):
    state.value = 0.5 * state.value
    return state.value, state.value < 0.2


def test_an_environment_is_rehearsed_before_it_is_compiled(define):
    """A mistake is found at its line in plain Python, before there is machine code without bounds checks."""

    def beyond(state, params, action, rng):
        state.board[0, 3] = 1
        return 0.0, False

    with pytest.raises(velocirl.DefinitionError, match=r"(?s)step fails with IndexError.*test_compiling.py:\d+"):
        velocirl.make_vec(define(state=Everything, step=beyond), 2)


def test_functions_are_not_changed_by_compiling(define):
    environment = define(step=halve)
    before = halve.__code__, halve.__defaults__, dict(halve.__globals__)
    velocirl.make_vec(environment, 2)
    assert (halve.__code__, halve.__defaults__) == before[:2]
    assert halve.__globals__ == before[2]
    assert isinstance(environment.step, types.FunctionType)
    row = environment.state.rows(1, {"value": 3.0}).view(np.recarray)[0]
    assert environment.step(row, None, 0, None) == (1.5, False)


def test_a_discrete_observation_is_written_as_its_only_element(define):
    def count(state, params, observation):
        observation[0] = 3

    envs = velocirl.make_vec(define(observe=count, observation=Discrete(5)), 2, seed=1)
    assert envs.reset()[0].tolist() == [3, 3]
    assert envs.observation_space.contains(envs.reset()[0])


def test_observations_may_be_integers(define):
    def bytes_of(state, params, observation):
        observation[0] = 200
        observation[1] = state.value

    environment = define(observe=bytes_of, observation=Box(0, 255, (2,), np.uint8))
    seen, _ = velocirl.make_vec(environment, 3, seed=1).reset()
    assert seen.dtype == np.uint8
    assert seen.tolist() == [[200, 0]] * 3
