"""What Gymnasium's vectors let people ask, set and call, on fleets; options of resets; the end."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import velocirl

MODES = pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)


@MODES
def test_a_fleet_says_what_its_copies_have(mode):
    envs = velocirl.make_vec("CartPole-v1", 2, seed=1, render_mode="ansi", autoreset_mode=mode)
    envs.reset()
    assert envs.autoreset_mode is mode
    assert envs.get_attr("push") == (10.0, 10.0)
    assert envs.get_attr("position") == tuple(envs.unwrapped.copies.state["position"].tolist())
    assert envs.get_attr("render_mode") == ("ansi", "ansi")
    assert envs.get_attr("action_space") == (envs.single_action_space,) * 2
    assert envs.call("render") == envs.render()
    for name, near in (("psh", "push"), ("rendr", "render")):
        with pytest.raises(AttributeError, match=f"CartPole-v1: its copies have no '{name}': did you mean '{near}'"):
            envs.get_attr(name)
    with pytest.raises(AttributeError, match="its copies have no 'step'"):
        envs.call("step", 0)


@MODES
def test_parameters_are_set_for_all_copies_or_one_by_one(mode):
    envs = velocirl.make_vec("CartPole-v1", 3, seed=1, autoreset_mode=mode)
    envs.set_attr("gravity", 5.0)
    assert envs.get_attr("gravity") == (5.0, 5.0, 5.0)
    envs.set_attr("gravity", [1.0, 2.0, 3.0])
    assert envs.get_attr("gravity") == (1.0, 2.0, 3.0)
    envs.reset()
    envs.step(np.ones(3, int))
    assert len(set(envs.get_attr("angular_velocity"))) == 3
    with pytest.raises(ValueError, match="one for each of 3 copies"):
        envs.set_attr("gravity", [1.0, 2.0])
    with pytest.raises(AttributeError, match="no parameter 'gravty': did you mean 'gravity'"):
        envs.set_attr("gravty", 1.0)


def test_one_environment_has_them_as_gymnasium_asks_for_them():
    env = gymnasium.make("velocirl/CartPole-v1")
    assert env.get_wrapper_attr("push") == 10.0
    env.set_wrapper_attr("push", 4.0)
    assert env.unwrapped.copies.params["push"] == 4.0
    assert env.has_wrapper_attr("push")
    assert not env.has_wrapper_attr("pull")
    env.set_wrapper_attr("note", "mine")
    assert env.get_wrapper_attr("note") == "mine"
    vector = SyncVectorEnv([lambda: velocirl.make("CartPole-v1")] * 2)
    vector.set_attr("gravity", [3.0, 4.0])
    assert vector.get_attr("gravity") == (3.0, 4.0)
    assert [env.copies.params["gravity"][0] for env in vector.envs] == [3.0, 4.0]


def test_masks_are_there_as_a_method_where_there_are_masks():
    env, envs = velocirl.make("TicTacToe-v1"), velocirl.make_vec("TicTacToe-v1", 2)
    env.reset(seed=1)
    _, infos = envs.reset(seed=1)
    assert env.action_masks().dtype == np.bool_
    np.testing.assert_array_equal(envs.call("action_masks"), infos["action_mask"])
    np.testing.assert_array_equal(env.action_masks(), infos["action_mask"][0])
    for one in (velocirl.make("CartPole-v1"), velocirl.make_vec("CartPole-v1", 2)):
        assert not hasattr(one, "action_masks")
    with pytest.raises(AttributeError, match="no 'action_masks'"):
        velocirl.make_vec("CartPole-v1", 2).call("action_masks")


# The options that Gymnasium's environments have, and what the fields of ours lie within then.
OPTIONS = [
    ("CartPole-v1", {"low": 0.2, "high": 0.21}, {"position": (0.2, 0.21), "angular_velocity": (0.2, 0.21)}),
    ("CartPole-v1", {"high": 0.0}, {"velocity": (-0.05, 0.0)}),
    ("MountainCar-v0", {"low": -1.1, "high": -1.0}, {"position": (-1.1, -1.0), "velocity": (0, 0)}),
    ("MountainCarContinuous-v0", {"low": 0.1, "high": 0.2}, {"position": (0.1, 0.2)}),
    ("Acrobot-v1", {"low": 0.5, "high": 0.6}, {"shoulder": (0.5, 0.6), "elbow_velocity": (0.5, 0.6)}),
    ("Pendulum-v1", {"x_init": 0.1, "y_init": 0.2}, {"angle": (-0.1, 0.1), "angular_velocity": (-0.2, 0.2)}),
]


@pytest.mark.parametrize(("name", "options", "ranges"), OPTIONS)
def test_gymnasiums_options_of_a_reset(name, options, ranges):
    gymnasium.make(name).reset(seed=1, options=dict(options))  # which has them, too
    envs, env = velocirl.make_vec(name, 64, seed=1), velocirl.make(name)
    for one in (envs, env):
        one.reset(seed=1, options=options)
        for field, (low, high) in ranges.items():
            values = one.copies.state[field]
            assert (values >= np.float32(low)).all()
            assert (values <= np.float32(high)).all()
    before = velocirl.make_vec(name, 64, seed=1).copies.params
    np.testing.assert_array_equal(envs.copies.params, before)  # they hold for that reset alone


@MODES
def test_options_and_a_mask_go_together(mode):
    envs = velocirl.make_vec("MountainCar-v0", 3, seed=1, autoreset_mode=mode, max_episode_steps=2)
    envs.reset()
    envs.step(np.ones(3, int))
    envs.step(np.ones(3, int))  # all are at their ends
    mask = np.array([True, False, True])
    seen, _ = envs.reset(options={"reset_mask": mask, "low": 0.3, "high": 0.4})
    np.testing.assert_array_equal((seen[:, 0] >= 0.3), mask)


def test_the_wrong_options_of_a_reset_are_refused_by_name():
    envs, env = velocirl.make_vec("CartPole-v1", 2), velocirl.make("CartPole-v1")
    for one in (envs, env):
        with pytest.raises(ValueError, match="CartPole-v1: reset has no option 'hihg': did you mean 'high'"):
            one.reset(options={"hihg": 1})
        with pytest.raises(ValueError, match=r"Params.low must be finite numbers, got 'deep'"):
            one.reset(options={"low": "deep"})
    with pytest.raises(ValueError, match=re.escape("Identity-v0: reset has no option 'low'; it has none")):
        velocirl.make("Identity-v0").reset(options={"low": 1})
    env.reset(options={})


def test_options_of_ones_own_are_parameters_by_name(define):
    @velocirl.record
    class Params:
        start: velocirl.float32 = 2.0

    def begin(state, params, rng):
        state.value = params.start

    env = velocirl.make(define(params=Params, reset=begin, options=("start",)), device="python")
    assert [env.reset(options={"start": 5.0})[0][0], env.reset()[0][0]] == [5.0, 2.0]
    with pytest.raises(velocirl.DefinitionError, match="options names 'strat': did you mean 'start'"):
        define(params=Params, options=("strat",))


@MODES
def test_nothing_goes_on_after_close(mode):
    envs = velocirl.make_vec("CartPole-v1", 2, seed=1, autoreset_mode=mode)
    envs.reset()
    state = envs.get_state()
    envs.close()
    calls = [lambda: envs.step(np.ones(2, int)), envs.reset, lambda: envs.set_state(state)]
    calls += [lambda: envs.unwrapped.run_randomly(1)]
    for call in calls:
        with pytest.raises(ClosedEnvironmentError, match="CartPole-v1: this fleet was closed"):
            call()


@pytest.mark.parametrize("make", [velocirl.make, velocirl.make_vec])
def test_unknown_keywords_are_refused_as_python_refuses_them(make):
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'frameskip'"):
        make("CartPole-v1", frameskip=1)


def test_gymnasium_gives_parameters_to_fleets_as_it_does_to_one_environment():
    envs = gymnasium.make_vec("velocirl/CartPole-v1", 2, gravity=5.0, params={"push": [1.0, 2.0]})
    assert (envs.get_attr("gravity"), envs.get_attr("push")) == ((5.0, 5.0), (1.0, 2.0))
    with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):
        gymnasium.make_vec("velocirl/CartPole-v1", 2, frameskip=1)


def test_a_fleet_tells_its_seed():
    envs = velocirl.make_vec("CartPole-v1", 2)
    envs.reset(seed=5)
    assert envs.np_random_seed == 5
    envs.reset()
    assert envs.np_random_seed == 5
