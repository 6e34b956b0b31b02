"""One copy behind Gymnasium's interface."""

import numpy as np
import pytest

import velocirl


def test_an_episode_ends_where_its_last_observation_is_shown():
    env = velocirl.make("Counter-v0", length=3)
    seen, infos = env.reset(seed=1)
    assert seen.tolist() == [0.0]
    assert infos == {}
    for step in range(3):
        seen, reward, terminated, truncated, infos = env.step(0)
        assert (seen.tolist(), reward, terminated, truncated) == ([step + 1], step, step == 2, False)
    assert infos == {}
    assert type(reward) is float
    assert type(terminated) is type(truncated) is bool


def test_stepping_on_after_the_end_is_refused_until_a_reset():
    env = velocirl.make("Bandit-v0")
    with pytest.raises(RuntimeError, match=r"Bandit-v0: .*call reset\(\)"):
        env.step(0)
    env.reset(seed=1)
    env.step(0)
    with pytest.raises(RuntimeError, match=r"Bandit-v0: the episode is over; call reset\(\)"):
        env.step(0)
    env.reset()
    assert env.step(0)[2] is True


def test_a_refused_action_does_not_end_the_episode():
    env = velocirl.make("Counter-v0")
    env.reset(seed=1)
    with pytest.raises(ValueError, match="Counter-v0"):
        env.step(5)
    assert env.step(1)[0].tolist() == [1.0]


def test_a_reset_in_the_midst_of_an_episode_begins_another():
    env = velocirl.make("CartPole-v1")
    first, _ = env.reset(seed=1)
    env.step(1)
    second, _ = env.reset()
    assert not np.isin(second, first).any()
    assert env.copies.elapsed[0] == 0
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)


def test_observations_that_were_given_are_never_written_again():
    env = velocirl.make("CartPole-v1")
    first, _ = env.reset(seed=1)
    before = first.copy()
    second = env.step(1)[0]
    np.testing.assert_array_equal(first, before)
    assert not np.array_equal(first, second)


def test_discrete_observations_are_numbers_of_the_space():
    env = velocirl.make("FrozenLake-v1")
    seen, _ = env.reset(seed=1)
    assert seen == 0
    assert isinstance(seen, np.int64)
    assert env.observation_space.contains(env.step(2)[0])


def test_parameters_are_keywords():
    heavy, light = velocirl.make("CartPole-v1", gravity=20.0), velocirl.make("CartPole-v1", gravity=1.0)
    speeds = []
    for env in (heavy, light):
        env.reset(seed=1)
        for _ in range(5):
            seen = env.step(1)[0]
        speeds.append(abs(seen[3]))
    assert heavy.copies.params["gravity"][0] == 20.0
    assert light.copies.params["gravity"][0] == 1.0
    assert speeds[0] != speeds[1]


def test_an_unknown_parameter_is_refused_with_a_suggestion():
    said = r"CartPole-v1: make\(\) got an unexpected keyword argument 'gravty': did you mean 'gravity'"
    with pytest.raises(TypeError, match=said):
        velocirl.make("CartPole-v1", gravty=9.8)


def test_it_runs_in_plain_python_too():
    compiled, plain = velocirl.make("CartPole-v1"), velocirl.make("CartPole-v1", device="python")
    np.testing.assert_allclose(compiled.reset(seed=3)[0], plain.reset(seed=3)[0], rtol=1e-6)
    for _ in range(20):
        ours, theirs = compiled.step(1), plain.step(1)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
        assert ours[1:4] == theirs[1:4]
        if ours[2]:
            np.testing.assert_allclose(compiled.reset()[0], plain.reset()[0], rtol=1e-6)
