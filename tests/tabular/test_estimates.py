"""Values and probabilities of tables, by hand, and as often as actions are drawn."""

import numpy as np
import pytest

import velocirl
from velocirl import DoubleQLearning, QLearning

STATE = 14  # of FrozenLake


def with_values(kind=QLearning, **settings):
    """An agent whose table was filled by hand, with the state at hand."""
    agent = kind("FrozenLake-v1", seed=0, num_envs=4, **settings)
    rows = agent.table.arrays.rows["values"]
    rows[:] = np.random.default_rng(0).normal(size=rows.shape)
    rows[STATE, :4] = 1.0, 3.0, 2.0, 3.0
    return agent


def test_values_of_a_table():
    agent = with_values()
    assert agent.q_values(STATE).tolist() == [1.0, 3.0, 2.0, 3.0]
    assert agent.value(STATE) == 3.0
    assert agent.q_values(STATE, 2) == 2.0
    assert agent.q_values(STATE, [0, 2]).tolist() == [1.0, 2.0]
    rows = agent.table.arrays.rows["values"]
    np.testing.assert_array_equal(agent.q_values(np.arange(16)), rows)
    np.testing.assert_array_equal(agent.value([3, 5]), rows[[3, 5]].max(axis=1))
    with pytest.raises(ValueError, match="action masks of 1 observations are not for this agent"):
        agent.q_values(STATE, action_masks=[1, 1, 1, 1])


def test_both_estimates_count_the_same():
    agent = with_values(DoubleQLearning)
    rows = agent.table.arrays.rows["values"]
    np.testing.assert_allclose(agent.q_values(7), (rows[7, :4] + rows[7, 4:]) / 2)


def test_masks_of_a_table():
    agent = QLearning("TicTacToe-v1", seed=0, num_envs=4)
    board, mask = np.array([1, 0, 0, 2, 0, 0, 0, 0, 0]), np.array([0, 1, 1, 0, 1, 1, 1, 1, 1], np.int8)
    told = agent.q_values(board, action_masks=mask)
    assert np.isneginf(told).tolist() == (mask == 0).tolist()
    np.testing.assert_allclose(agent.action_probabilities(board, action_masks=mask), mask / 7, rtol=1e-6)


WEIGHTS = np.exp([-1.0, 0.0, -0.5, 0.0])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"exploration_rate": 0.4}, [0.1, 0.4, 0.1, 0.4]),
        (
            {"exploration": "softmax", "exploration_rate": 2.0},
            WEIGHTS / WEIGHTS.sum(),
        ),
        # 3 + 2 sqrt(log(20) / 8) = 4.22 is less than 2 + 2 sqrt(log(20) / 2) = 4.45, as is 1 + ... = 2.55.
        ({"exploration": "ucb", "exploration_rate": 2.0}, [0.0, 0.0, 1.0, 0.0]),
    ],
    ids=["epsilon_greedy", "softmax", "ucb"],
)
def test_probabilities_are_those_of_what_is_drawn(settings, expected):
    agent = with_values(exploration_schedule="constant", **settings)
    if settings.get("exploration") == "ucb":
        agent.table.arrays.rows["visits"][STATE] = 2, 8, 2, 8
    np.testing.assert_allclose(agent.action_probabilities(STATE), expected, rtol=1e-6)
    assert agent.action_probabilities([STATE, 3]).shape == (2, 4)
    drawn = agent.predict(np.full(4000, STATE))[0]
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, expected, atol=0.03)


def test_a_state_that_was_never_visited_has_equal_probabilities():
    agent = QLearning("FrozenLake-v1", seed=0, num_envs=4, storage="sparse", exploration_rate=0.1)
    assert agent.action_probabilities(3).tolist() == [0.25] * 4
    assert agent.value(3) == 0.0


def test_actions_count_from_where_the_space_says(tmp_path):
    import gymnasium

    class Shifted(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.Discrete(3, start=5)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            return 1, 0.0, True, False, {}

    agent = velocirl.QLearning(Shifted, seed=0, num_envs=1)
    agent.table.arrays.rows["values"][0] = 1.0, 2.0, 3.0
    assert agent.q_values(0, 7) == 3.0
    assert agent.predict(0, deterministic=True)[0] == 7
