"""`max_episode_steps` cuts episodes off where it says, in every way in which environments are made."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit

import velocirl
from velocirl.engine.compiler import units

PUSH = [0.5]


def length_of_an_episode(env, most=1500):
    """Steps of Pendulum, which only a time limit ends, and how often an end was told on the way."""
    env.reset(seed=1)
    for step in range(1, most + 1):
        _, _, terminated, truncated, _ = env.step(PUSH)
        assert not terminated
        if truncated:
            return step
    return None


@pytest.mark.parametrize(("given", "expected"), [(None, 200), (500, 500), (7, 7), (1, 1), (-1, None)])
@pytest.mark.parametrize(
    "make", [velocirl.make, lambda name, **more: gymnasium.make(f"velocirl/{name}", **more)], ids=["ours", "gymnasiums"]
)
def test_an_episode_ends_after_as_many_steps_as_are_given(make, given, expected):
    assert length_of_an_episode(make("Pendulum-v1", max_episode_steps=given)) == expected


@pytest.mark.parametrize("device", ["cpu", "python"])
@pytest.mark.parametrize(("given", "expected"), [(None, 16), (20, 20), (3, 3), (-1, None)])
def test_the_episodes_of_a_fleet_end_there_as_well(given, expected, device):
    envs = velocirl.make_vec("Identity-v0", 2, seed=1, device=device, max_episode_steps=given)
    envs.reset()
    ends = [step for step in range(1, 41) if envs.step(np.zeros(2, int))[3].all()]
    assert ends == ([] if expected is None else list(range(expected, 41, expected)))


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_gymnasium_makes_fleets_with_it(mode):
    envs = gymnasium.make_vec("velocirl/Identity-v0", 2, max_episode_steps=3, autoreset_mode=mode)
    envs.reset(seed=1)
    assert [bool(envs.step(np.zeros(2, int))[3].all()) for _ in range(3)] == [False, False, True]
    assert gymnasium.make_vec("velocirl/Identity-v0", 2).unwrapped.copies.limit == 16


def test_a_fleet_of_gymnasiums_takes_it_too():
    envs = velocirl.make_vec("gym:Pendulum-v1", 2, seed=1, max_episode_steps=3)
    envs.reset()
    assert [bool(envs.step(np.zeros((2, 1), np.float32))[3].all()) for _ in range(3)] == [False, False, True]
    envs.close()
    assert length_of_an_episode(velocirl.make("gym:Pendulum-v1", max_episode_steps=300)) == 300


def test_specifications_tell_it():
    assert gymnasium.spec("velocirl/Pendulum-v1").max_episode_steps == 200
    assert gymnasium.make("velocirl/Pendulum-v1").spec.max_episode_steps == 200
    spec = gymnasium.make("velocirl/Pendulum-v1", max_episode_steps=500).spec
    assert spec.max_episode_steps == 500
    assert length_of_an_episode(gymnasium.make(spec)) == 500


def test_a_time_limit_on_top_of_ours_is_the_shorter_of_both():
    assert length_of_an_episode(TimeLimit(velocirl.make("Pendulum-v1"), 50)) == 50
    assert length_of_an_episode(TimeLimit(velocirl.make("Pendulum-v1"), 400)) == 200
    env = TimeLimit(velocirl.make("Pendulum-v1"), 200)  # both at once: one end, and the next episode is whole
    assert length_of_an_episode(env) == 200
    env.reset()
    assert [env.step(PUSH)[3] for _ in range(200)] == [False] * 199 + [True]


def test_episodes_follow_each_other_as_without_gymnasiums_wrapper():
    """Whoever cuts an episode off, the next one is the one that the stream of random numbers gives."""
    ours, theirs = (
        velocirl.make("Pendulum-v1", max_episode_steps=5),
        gymnasium.make("velocirl/Pendulum-v1", max_episode_steps=5),
    )
    first = [env.reset(seed=1)[0] for env in (ours, theirs)]
    np.testing.assert_array_equal(*first)
    for _ in range(3):
        for _ in range(5):
            one, other = ours.step(PUSH), theirs.step(PUSH)
            np.testing.assert_array_equal(one[0], other[0])
            assert one[1:4] == other[1:4]
        np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])


def test_reports_reach_whoever_limits_the_time(define):
    environment = define(report=("value",), max_steps=2)
    env = gymnasium.make(f"velocirl/{environment.id}")
    env.reset(seed=1)
    env.step(0)
    *_, truncated, infos = env.step(0)
    assert truncated
    assert infos == {"value": 0.0}


def test_another_limit_compiles_nothing(monkeypatch):
    velocirl.make_vec("Pendulum-v1", 2, seed=1).run_randomly(1)
    compiled = []
    monkeypatch.setattr(units, "_compile", compiled.append)
    envs = velocirl.make_vec("Pendulum-v1", 2, seed=1, max_episode_steps=123)
    envs.run_randomly(123)
    assert compiled == []
    np.testing.assert_array_equal(envs.copies.episode_length, 123)


def test_a_saved_state_beyond_the_limit_is_refused():
    long, short = (velocirl.make_vec("Pendulum-v1", 2, seed=1, max_episode_steps=steps) for steps in (500, 50))
    long.reset()
    for _ in range(300):
        long.step(np.zeros((2, 1), np.float32))
    saved = long.get_state()
    np.testing.assert_array_equal(saved["elapsed"], 300)
    with pytest.raises(ValueError, match=r"elapsed is 300 .*from 0 to 49"):
        short.set_state(saved)
    long.set_state(saved)


@pytest.mark.parametrize("steps", [0, -2, 2.5, True, "many"])
def test_an_impossible_limit_is_refused(steps):
    with pytest.raises(ValueError, match="Pendulum-v1: max_episode_steps must be"):
        velocirl.make("Pendulum-v1", max_episode_steps=steps)
