"""Super Mario Bros. of gym-super-mario-bros, where somebody has installed it, which no extra of ours does."""

import numpy as np
import pytest

import velocirl

pytest.importorskip("gym_super_mario_bros", reason="gym-super-mario-bros is not installed", exc_type=ImportError)
RIGHT = 3  # with the button to run


def test_mario_runs_into_the_first_goomba():
    """Positions beyond a byte are right, rewards are how far he went, and death ends the episode of a stage."""
    env = velocirl.make("gym:NES/SuperMarioBros-1-1-v0")
    observation, info = env.reset(seed=0)
    assert (observation.shape, observation.dtype) == ((240, 256, 3), np.uint8)
    assert (info["x_pos"], info["lives"], info["time"]) == (40, 3, 400)
    total, terminated, first = 0.0, False, observation
    while not terminated:
        observation, reward, terminated, truncated, info = env.step(RIGHT)
        total += reward
        assert not truncated
    assert info["x_pos"] > 255
    assert info["x_pos"] - 40 - 30 < total < info["x_pos"] - 40  # less the clock, and the death
    assert not np.array_equal(first, observation)  # which have memory of their own
    env.close()


def test_mario_is_preprocessed_as_atari_is():
    envs = velocirl.make_vec("gym:NES/SuperMarioBros-v0", 1, preprocess="atari(noops=0)", seed=1)
    assert envs.reset()[0].shape == (1, 4, 84, 84)
    assert envs.single_action_space.n == 7
    lost = 0
    for _ in range(200):
        _, rewards, terminated, *_ = envs.step(np.array([RIGHT]))
        assert rewards[0] in (-1.0, 0.0, 1.0)
        lost += int(terminated[0])
    assert lost >= 2  # lives; the game goes on


def test_buttons_are_chosen_by_name():
    assert velocirl.make("gym:NES/SuperMarioBros-v0", movement="complex").action_space.n == 12
    with pytest.raises(ValueError, match="movement must be one of right, simple, complex, got 'all'"):
        velocirl.make("gym:NES/SuperMarioBros-v0", movement="all")
