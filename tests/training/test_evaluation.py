"""Evaluation: whole episodes, the same number from every copy."""

import numpy as np
import pytest

import velocirl
from velocirl import PPO, Evaluation, evaluate


class Fixed:
    """A model that always does the same, and remembers what it was asked."""

    def __init__(self, action=0):
        self.action, self.calls = action, []

    def predict(self, observation, *, deterministic, action_masks=None):
        self.calls.append((len(observation), deterministic, action_masks))
        return np.full(len(observation), self.action), None


def vector(lengths):
    return velocirl.make_vec("Counter-v0", len(lengths), params={"length": np.array(lengths)})


def test_every_copy_plays_the_same_number_of_episodes():
    """Were the first episodes to end counted, the short ones would be most of them."""
    result = evaluate(Fixed(), vector([1, 20, 5]), episodes=7)
    assert sorted(result.lengths.tolist()) == [1, 1, 1, 5, 5, 20, 20]
    assert sorted(result.returns.tolist()) == [0, 0, 0, 10, 10, 190, 190]
    assert result.mean_return == pytest.approx(400 / 7)
    assert result.std_return == pytest.approx(np.std([0, 0, 0, 10, 10, 190, 190]))
    assert str(result) == f"{400 / 7:.2f} +- {result.std_return:.2f} over 7 episodes of 7.6 steps"


@pytest.mark.parametrize(("episodes", "copies"), [(1, 1), (5, 5), (128, 128), (300, 128)])
def test_number_of_episodes(episodes, copies):
    model = Fixed()
    result = evaluate(model, "Counter-v0", episodes=episodes)
    assert result.returns.tolist() == [45.0] * episodes
    assert result.lengths.tolist() == [10] * episodes
    assert {count for count, _, _ in model.calls} == {copies}


def test_masks_and_determinism_reach_the_model():
    model = Fixed()
    evaluate(model, "TicTacToe-v1", episodes=3, seed=0, deterministic=False)
    assert all(masks.shape == (3, 9) and not deterministic for _, deterministic, masks in model.calls)
    evaluate(model, "Counter-v0", episodes=3)
    assert model.calls[-1] == (3, True, None)


def test_seeds():
    results = [evaluate(Fixed(), "Bandit-v0", episodes=50, seed=seed).returns.tolist() for seed in (1, 1, 2)]
    assert results[0] == results[1]
    assert results[0] != results[2]


def test_of_an_agent_in_its_own_environment():
    agent = PPO("Counter-v0", hidden=(16, 16), num_envs=6, horizon=16, threads=2, seed=1)
    assert evaluate(agent, episodes=4).returns.tolist() == [45.0] * 4
    assert evaluate(agent, "gym:velocirl/Counter-v0", episodes=2).lengths.tolist() == [10] * 2


def test_what_cannot_be_evaluated():
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        evaluate(Fixed(), "Counter-v0", episodes=0)
    with pytest.raises(ValueError, match="say in which environment"):
        evaluate(Fixed())


def test_an_evaluation_is_a_value():
    result = Evaluation(np.array([1.0, 3.0]), np.array([4, 6]))
    assert (result.mean_return, result.std_return) == (2, 1)
