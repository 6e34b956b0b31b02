import math
import subprocess

import numpy as np
import pytest
from deployed import (
    AGENTS,
    ROWS_OF,
    Compiled,
    Spaces,
    assert_same,
    masks_for,
    needs_cc,
    observations_for,
    said_by,
    shaken,
)
from gymnasium.spaces import Box, Discrete
from parts import Parts

import velocirl
from velocirl.deployment.c_words import comment, identifier, real
from velocirl.deployment.controller import Choice
from velocirl.deployment.reading import read_controller


@needs_cc
@pytest.mark.parametrize("kind", AGENTS)
def test_c_acts_as_the_model_does(kind, tmp_path):
    agent = shaken(AGENTS[kind]())
    controller = read_controller(agent)
    rows = ROWS_OF.get(kind, 500)
    raw, masks = observations_for(controller, rows), masks_for(controller, rows)
    compiled = Compiled(velocirl.export(agent, tmp_path / "controller.c"), tmp_path, controller)
    found, expected = compiled.all(raw, masks), said_by(agent, raw, masks)
    assert_same(controller, found, expected, raw)
    for place, one in enumerate(controller.actions):  # they are not all the same, and within what the space allows
        assert len(np.unique(found[:, place])) > 1
        if isinstance(one, Choice):
            assert set(found[:, place]) <= set(range(one.start, one.start + one.count))
        else:
            assert found[:, place].min() >= np.float32(one.centre + one.reach * one.low)
            assert found[:, place].max() <= np.float32(one.centre + one.reach * one.high)


@needs_cc
def test_c_reaches_the_limits_of_actions_and_no_more(tmp_path):
    agent = shaken(AGENTS["gaussian"]())
    agent.policy.parameters[:] *= 10
    controller = read_controller(agent)
    compiled = Compiled(velocirl.export(agent, tmp_path / "controller.c"), tmp_path, controller)
    found = compiled.all(observations_for(controller, 500))
    assert (found.min(), found.max()) == (-2.0, 2.0)


@needs_cc
def test_what_is_not_finite_gives_no_action_and_leaves_the_last_one(tmp_path):
    for kind in ("gaussian", "categorical"):  # without and with a normaliser, which would hold an infinite one
        controller = read_controller(agent := shaken(AGENTS[kind]()))
        compiled = Compiled(velocirl.export(agent, tmp_path / f"{agent.source.id}.c"), tmp_path, controller)
        size = len(controller.signals)
        for place in range(size):
            for wrong in (math.nan, math.inf, -math.inf):
                observation = np.zeros(size)
                observation[place] = wrong
                status, action = compiled.one(observation, before=0.25)
                assert (status, action.tolist()) == (1, [0.25])
        assert compiled.one(np.zeros(size))[0] == 0


@needs_cc
def test_a_network_that_overflows_gives_no_action(tmp_path):
    agent = shaken(velocirl.PPO("Pendulum-v1", hidden=(4,), activation="relu", device="python"))
    agent.policy.parameters[:] = 100.0
    compiled = Compiled(velocirl.export(agent, tmp_path / "controller.c"), tmp_path, read_controller(agent))
    assert compiled.one([3e38, 3e38, 3e38], before=1.5) == (1, [1.5])
    assert compiled.one([1.0, 1.0, 1.0]) == (0, [2.0])


@needs_cc
def test_a_number_that_is_no_code_gives_no_action(tmp_path):
    agent = shaken(AGENTS["code"]())
    compiled = Compiled(velocirl.export(agent, tmp_path / "controller.c"), tmp_path, read_controller(agent))
    assert [compiled.one([number], before=9.0)[0] for number in (-3.0, 3.0)] == [0, 0]
    for wrong in (-4.0, 4.0, 0.5, math.nan, 1e30):
        status, action = compiled.one([wrong], before=9.0)
        assert (status, action.tolist()) == (1, [9.0])


@needs_cc
def test_no_mask_is_one_that_allows_everything(tmp_path):
    agent = shaken(AGENTS["masked codes"]())
    controller = read_controller(agent)
    compiled = Compiled(velocirl.export(agent, tmp_path / "controller.c"), tmp_path, controller)
    raw = observations_for(controller, 50)
    everything, nothing = (np.full((50, 9), value) for value in (1, 0))
    assert (compiled.all(raw) == compiled.all(raw, everything)).all()
    assert (compiled.all(raw) == compiled.all(raw, nothing)).all()


@needs_cc
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_table_in_c(storage, tmp_path):
    agent = velocirl.QLearning("FrozenLake8x8-v1", storage=storage, num_envs=4, seed=1)
    generator = np.random.default_rng(2)
    if storage == "sparse":
        keys = generator.permutation(64)[:40]
        agent.table.load_state({"state": keys, "values": generator.normal(size=(40, 4)).astype(np.float32)})
    else:
        agent.table.load_state({"values": generator.normal(size=(64, 4)).astype(np.float32)})
    controller = read_controller(agent)
    compiled = Compiled(velocirl.export(agent, tmp_path / "table.c"), tmp_path, controller)
    raw = np.arange(64)[:, None]
    expected, _ = agent.predict(np.arange(64), deterministic=True)
    assert compiled.all(raw)[:, 0].tolist() == expected.tolist()
    assert len(set(expected.tolist())) == 4
    assert [compiled.one([wrong])[0] for wrong in (-1.0, 64.0, 0.5, math.nan)] == [1, 1, 1, 1]


@needs_cc
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_table_with_masks_in_c(storage, tmp_path):
    agent = velocirl.DoubleQLearning("TicTacToe-v1", storage=storage, num_envs=4, seed=1)
    generator, count = np.random.default_rng(2), 3**9
    if storage == "sparse":
        count = 3000
        keys = {"state": generator.permutation(3**9)[:count]}
    else:
        keys = {}
    agent.table.load_state({**keys, "values": generator.integers(0, 5, (count, 18)).astype(np.float32)})
    controller = read_controller(agent)
    compiled = Compiled(velocirl.export(agent, tmp_path / "table.c"), tmp_path, controller)
    raw = generator.integers(0, 3, (2000, 9))
    masks = generator.integers(0, 2, (2000, 9)).astype(np.int8)
    masks[:5] = 0
    expected, _ = agent.predict(raw, deterministic=True, action_masks=masks)
    assert compiled.all(raw, masks)[:, 0].tolist() == expected.tolist()
    free, _ = agent.predict(raw, deterministic=True)
    assert compiled.all(raw)[:, 0].tolist() == free.tolist()
    assert expected[:5].tolist() == free[:5].tolist()  # a mask that forbids everything counts for nothing


HOSTILE = 'Pump */ int system(const char *); /* "\\\n#include <stdlib.h>\n??/ \u202e é-v1'


@needs_cc
def test_names_are_names_and_never_code(tmp_path):
    tank = velocirl.Environment(
        "Hostile-v0", state=State, observation=Box(0, 1, (1,)), action=Box(0, 1, (1,)), reset=reset, step=step,
        observe=observe, signals={HOSTILE: "*/ m"}, actuators={"/*": HOSTILE},
    )  # fmt: skip
    agent = shaken(velocirl.PPO(tank, device="python"))
    agent.source.id = HOSTILE
    controller = read_controller(agent)
    path = velocirl.export(agent, tmp_path / "controller.c")
    compiled = Compiled(path, tmp_path, controller)
    assert compiled.one([0.5])[0] == 0
    text = path.read_text()
    code = text.partition("*/")[2].replace(compiled.function.__name__.removesuffix("_predict"), "")
    assert "system" not in code
    assert "stdlib" not in code
    assert text.count("/*") == text.count("*/") == 1
    assert compiled.function.__name__ == "pump_int_system_const_char_include_stdlib_h_v1_predict"
    symbols = subprocess.run(["nm", "-D", "--defined-only", tmp_path / "controller.so"], capture_output=True, text=True)
    assert [line.split()[-1] for line in symbols.stdout.splitlines()] == [compiled.function.__name__]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ChemicalReactor-v0", "chemicalreactor_v0"),
        ("gym:ns/Thing-v1", "gym_ns_thing_v1"),
        ("3D", "controller_3d"),
        ("", "controller"),
        ("__", "controller"),
        ("é", "controller"),
        ("int", "int"),  # `int_predict` is no keyword
        ("a" * 200, "a" * 48),
    ],
)
def test_names_in_c(text, name):
    assert identifier(text) == name


def test_comments_do_not_end_early():
    assert comment("a*/b") == "a_/b"
    assert comment("kg*m/s") == "kg*m/s"
    assert comment("a\nb\\?") == "a_b__"
    assert comment("°C, m³") == "°C, m³"


def test_numbers_in_c_are_exact():
    values = np.random.default_rng(0).normal(0, 1, 1000).astype(np.float32)
    assert all(np.float32(real(value).removesuffix("f")) == value for value in values)
    assert [real(one) for one in (1.0, -2, 1e-45, math.inf)] == ["1.0f", "-2.0f", "1.40129846e-45f", "3.40282347e+38f"]


def test_what_c_cannot_say_is_refused_by_name(tmp_path):
    path = tmp_path / "controller.c"
    cases = [
        (velocirl.PPO(Parts, device="python"), "C reads observations that are one array, and those of .* are Dict"),
        (velocirl.PPO("CatchPixels-v0", network="cnn(2x3s2) mlp(4)"), "a file of C needs .* a convolutional network"),
        (velocirl.PPO("CartPole-v1", network="mlp(4) lstm(4)"), "RecurrentPolicy is recurrent"),
        (velocirl.PPO(lambda: Spaces(Discrete(5, start=2**24), Discrete(2)), device="python"), "up to 16,777,216"),
    ]
    for agent, message in cases:
        with pytest.raises(ValueError, match=message):
            velocirl.export(agent, path)
    broken = velocirl.PPO("CartPole-v1", device="python")
    broken.policy.parameters[3] = np.nan
    with pytest.raises(ValueError, match="parameters that are not finite"):
        velocirl.export(broken, path)
    empty = velocirl.QLearning("FrozenLake-v1", storage="sparse", num_envs=4)
    with pytest.raises(ValueError, match="the table is empty"):
        velocirl.export(empty, path)
    assert list(tmp_path.iterdir()) == []


@velocirl.record
class State:
    level: velocirl.float32


def reset(state, params, rng):
    state.level = 0.5


def step(state, params, action, rng):
    return 0.0, False


def observe(state, params, observation):
    observation[0] = state.level
