"""Prioritised replay: frequencies against priorities, weights, new records, saving; proportional and by rank."""

import numpy as np
import pytest
from numbered import TYPE, numbered

from velocirl.buffers.prioritised import PrioritisedReplayBuffer


def filled(capacity=20, added=None, **settings):
    buffer = PrioritisedReplayBuffer(capacity, TYPE, seed=0, **settings)
    buffer.add(numbered(0, capacity if added is None else added))
    return buffer


def frequencies(buffer, rounds=2000, count=64, beta=0.5):
    counts = np.zeros(buffer.capacity)
    for _ in range(rounds):
        drawn, places, _ = buffer.sample(count, beta)
        assert (drawn["reward"] == buffer.rows["reward"][places]).all()
        counts += np.bincount(places, minlength=buffer.capacity)
    return counts / counts.sum()


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_are_as_the_priorities_say(alpha):
    buffer = filled(alpha=alpha, epsilon=0.01)
    priorities = np.arange(20, dtype=np.float32) ** 2
    buffer.update(np.arange(20), -priorities)  # only the size of an error counts
    expected = (priorities + 0.01) ** alpha
    expected /= expected.sum()
    # Shares are drawn from in turn, so the spread is below that of independent draws.
    spread = np.sqrt(expected * (1 - expected) / (2000 * 64))
    assert (np.abs(frequencies(buffer) - expected) < 4 * spread + 1e-9).all()


def test_each_share_of_the_total_is_drawn_from_once():
    buffer = filled(16, alpha=1.0)
    for _ in range(50):
        _, places, _ = buffer.sample(16, 1.0)
        assert places.tolist() == list(range(16))  # equal priorities: one from each


def test_weights():
    buffer = filled(4, alpha=0.5, epsilon=1e-6)
    priorities = np.array([1, 4, 9, 16], np.float32)
    buffer.update(np.arange(4), priorities)
    probabilities = np.array([1, 2, 3, 4]) / 10
    for beta in (0.0, 0.4, 1.0):
        _, places, weights = buffer.sample(64, beta)
        expected = (4 * probabilities[places]) ** -beta
        np.testing.assert_allclose(weights, expected / expected.max(), rtol=1e-5)
        assert weights.dtype == np.float32


def test_with_beta_1_the_weights_undo_the_priorities():
    buffer = filled(50, alpha=0.8)
    buffer.update(np.arange(50), np.random.default_rng(0).uniform(0.3, 5, 50).astype(np.float32))
    total = np.zeros(50)
    for _ in range(500):
        _, places, weights = buffer.sample(256, 1.0)
        leaf = buffer.tree.reshape(-1)[places]
        total += np.bincount(places, weights / weights.max() / leaf.min(), minlength=50)
    np.testing.assert_allclose(total / total.mean(), 1, atol=0.1)


def test_new_records_have_the_largest_priority_so_far():
    buffer = filled(10, added=3, alpha=1.0, epsilon=1e-6)
    assert buffer.tree[0, :10].tolist() == [1] * 3 + [0] * 7
    buffer.update(np.array([0, 1]), np.array([8, 0.25], np.float32))
    buffer.update(np.array([0]), np.array([2], np.float32))
    buffer.add(numbered(3, 9))  # through the seam: places 3 to 9, then 0 and 1
    np.testing.assert_allclose(buffer.tree[0, :10], [8, 8, 1, 8, 8, 8, 8, 8, 8, 8], rtol=1e-5)
    assert buffer.counts.tolist() == [2, 10, 12]
    assert buffer.rows["reward"].tolist() == [10, 11, 2, 3, 4, 5, 6, 7, 8, 9]


def test_only_what_was_added_is_drawn():
    buffer = filled(1000, added=3)
    assert set(buffer.sample(300, 0.5)[1]) == {0, 1, 2}


def test_a_place_named_twice_has_its_last_priority():
    buffer = filled(4, alpha=1.0, epsilon=1e-9)
    buffer.update(np.array([2, 1, 2]), np.array([5, 6, 7], np.float32))
    np.testing.assert_allclose(buffer.tree[0, :4], [1, 6, 7, 1], rtol=1e-5)


def test_the_smallest_and_the_largest_priorities_can_be_drawn():
    buffer = filled(3, alpha=1.0, epsilon=1e-45)
    buffer.update(np.arange(3), np.array([0, 1, 3.4e38], np.float32))
    leaves = buffer.tree[0, :3]
    assert np.isfinite(buffer.tree).all()
    assert 0 < leaves[0] < leaves[1] < leaves[2]
    _, places, weights = buffer.sample(16, 0.0)
    assert set(places) == {2}
    assert (weights == 1).all()


@pytest.mark.parametrize("added", [0, 13, 70])
def test_going_on_from_a_saved_state(added):
    buffer = filled(40, added=added)
    if added:
        buffer.update(np.arange(5), np.arange(5, dtype=np.float32))
    other = PrioritisedReplayBuffer(40, TYPE, seed=9)
    other.add(numbered(0, 3))
    other.load_state(buffer.state())
    for one in (buffer, other):
        one.add(numbered(added, 4))
    np.testing.assert_array_equal(buffer.tree, other.tree)
    for mine, theirs in zip(buffer.sample(30, 0.7), other.sample(30, 0.7), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("priorities", lambda array: changed(array, 2, np.nan)),
        ("priorities", lambda array: changed(array, 2, 0)),
        ("priorities", lambda array: changed(array, 2, -1)),
        ("priorities", lambda array: changed(array, 7, 1)),  # of a record that is not there
        ("priorities", lambda array: changed(array, 2, 5)),  # above the greatest
        ("greatest", lambda array: changed(array, 0, np.inf)),
        ("priorities", lambda array: array[:-1]),
        ("greatest", lambda array: array.astype(np.float16)),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(name, change):
    buffer = filled(8, added=5)
    before = buffer.state()
    with pytest.raises(ValueError, match=f"{name} of the state|priorities of the state"):
        buffer.load_state({**before, name: change(before[name])})
    for field, array in buffer.state().items():
        np.testing.assert_array_equal(array, before[field])


def test_what_makes_no_sense_is_refused_and_changes_nothing():
    for settings, says in (({"alpha": 1.5}, "alpha must be"), ({"epsilon": 0.0}, "epsilon must be")):
        with pytest.raises(ValueError, match=says):
            PrioritisedReplayBuffer(4, TYPE, seed=0, **settings)
    buffer = filled(8, added=3)
    before = buffer.tree.copy()
    for places, priorities, says in (
        ([0, 1], [1, np.nan], "priority 1 is nan; the learning has diverged"),
        ([0, 1], [np.inf, 1], "priority 0 is inf"),
        ([0, 3], [1, 1], "place 1 is 3, but the buffer has 3 transitions"),
        ([-1], [1], "place 0 is -1"),
        ([0, 1], [1], "one priority for each place"),
    ):
        with pytest.raises(ValueError, match=says):
            buffer.update(np.array(places), np.array(priorities, np.float32))
    np.testing.assert_array_equal(buffer.tree, before)
    with pytest.raises(ValueError, match="beta must be between 0 and 1"):
        buffer.sample(3, 1.2)
    with pytest.raises(RuntimeError, match="empty"):
        PrioritisedReplayBuffer(4, TYPE, seed=0).sample(1, 0.5)
