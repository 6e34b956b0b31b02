"""The share of actions that are unlike those of the data, where it is known."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from velocirl import Dataset, DatasetInfo
from velocirl.judging.acting import actions_at_recorded
from velocirl.judging.coverage import coverage_of
from velocirl.judging.numbers import action_numbers

SEEN = Box(-10, 10, (2,), np.float32)


def data_of(action_space, act, episodes=40, length=30):
    """States that are drawn anew at each step, and a number that never changes; `act` has a generator and the state."""
    generator, found = np.random.default_rng(3), []
    for _ in range(episodes):
        seen = np.stack([generator.uniform(-1, 1, length + 1), np.full(length + 1, 5.0)], axis=1)
        actions = np.array([act(generator, x) for x in seen[:-1, 0]], action_space.dtype)
        found.append({"observations": seen, "actions": actions, "rewards": np.zeros(length)})
    return Dataset.from_episodes(found, DatasetInfo(SEEN, action_space))


def share_of(data, policy):
    model = type("Model", (), {"predict": staticmethod(lambda seen, **_: (policy(seen[:, 0]), None))})
    return coverage_of(data, actions_at_recorded(model, data))


def test_actions_are_unusual_where_nobody_took_such_in_similar_states():
    """The data acts within 0.1 of its state; a policy that is 1 off where the state is above 0.5 is unusual there."""
    data = data_of(Box(-4, 4, (1,), np.float32), lambda generator, x: [x + generator.uniform(-0.1, 0.1)])
    same = share_of(data, lambda x: x[:, None])
    assert same.unusual < 0.1
    assert same.own == pytest.approx(0.05, abs=0.01)
    quarter = share_of(data, lambda x: (x + (x > 0.5))[:, None])
    assert quarter.unusual == pytest.approx(0.25, abs=0.06)
    assert share_of(data, lambda x: x[:, None] + 1).unusual == 1.0


@pytest.mark.parametrize("space", [
    Box(np.array([-2, 10], np.float32), np.array([2, 350], np.float32)), Box(0, 255, (2,), np.uint8),
], ids=["floats", "bytes"])  # fmt: skip
def test_numbers_of_actions_are_from_minus_one_to_one(space):
    ends = np.stack([space.low, (space.low + (space.high - space.low) / 2).astype(space.dtype), space.high])
    expected = [[-1, -1], [0, 0], [1, 1]]
    np.testing.assert_allclose(action_numbers(space, ends, 3), expected, atol=0.005)


def test_a_choice_is_unusual_where_nobody_made_it():
    data = data_of(Discrete(3), lambda generator, x: generator.integers(0, 2) if x < 0 else 1)
    assert share_of(data, lambda x: np.ones(len(x), int)).unusual == 0.0
    assert share_of(data, lambda x: np.full(len(x), 2)).unusual == 1.0
    assert share_of(data, lambda x: np.zeros(len(x), int)).unusual == pytest.approx(0.5, abs=0.06)


def test_a_single_recording_leaves_out_only_the_state_itself():
    data = data_of(Box(-4, 4, (1,), np.float32), lambda generator, x: [x], episodes=1, length=200)
    found = share_of(data, lambda x: x[:, None])
    assert (found.unusual, found.states) == (pytest.approx(0.05, abs=0.01), 200)
    with pytest.raises(ValueError, match="a single transition"):
        share_of(data_of(Discrete(2), lambda *_: 0, episodes=1, length=1), lambda x: np.zeros(len(x), int))
