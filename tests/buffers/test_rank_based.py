"""Prioritised replay by rank: the heap against sorting, frequencies against ranks, weights, saving."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from numbered import TYPE, numbered

from velocirl.buffers.rank_based import RankReplayBuffer


def filled(capacity=20, added=None, **settings):
    buffer = RankReplayBuffer(capacity, TYPE, seed=0, **settings)
    buffer.add(numbered(0, capacity if added is None else added))
    return buffer


def assert_heap(buffer):
    count = len(buffer)
    places = buffer.heap.places[:count]
    assert sorted(places) == list(range(count))
    assert buffer.heap.ranks[places].tolist() == list(range(count))
    ranked = buffer.heap.priorities[places]
    for rank in range(1, count):
        assert ranked[rank] <= ranked[(rank - 1) // 2]


@settings(max_examples=40, deadline=None)
@given(data=some.data(), capacity=some.integers(1, 20))
def test_the_heap_under_any_changes(data, capacity):
    buffer, plain, total = RankReplayBuffer(capacity, TYPE, seed=0), np.zeros(capacity, np.float32), 0
    greatest = 1.0
    for _ in range(data.draw(some.integers(1, 6))):
        added = data.draw(some.integers(0, 30))
        buffer.add(numbered(total, added))
        for number in range(total, total + added):
            plain[number % capacity] = greatest
        total += added
        if total:
            places = data.draw(some.lists(some.integers(0, min(total, capacity) - 1), max_size=10))
            values = data.draw(some.lists(some.floats(-9, 9, width=32), min_size=len(places), max_size=len(places)))
            buffer.update(np.array(places, np.int64), np.array(values, np.float32))
            for place, value in zip(places, values, strict=True):
                plain[place] = abs(value)
                greatest = max(greatest, abs(value))
        np.testing.assert_array_equal(buffer.heap.priorities, plain)
        assert_heap(buffer)
    buffer.sort()
    assert_heap(buffer)
    assert (np.diff(buffer.heap.priorities[buffer.heap.places[: len(buffer)]]) <= 0).all()


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_frequencies_are_as_the_ranks_say(alpha):
    buffer = filled(alpha=alpha)
    buffer.update(np.arange(20), np.geomspace(1, 1e6, 20).astype(np.float32))
    buffer.sort()
    expected = np.arange(20, 0, -1.0) ** -alpha
    expected /= expected.sum()
    counts = np.zeros(20)
    for _ in range(2000):
        drawn, places, weights = buffer.sample(64, 0.5)
        assert (drawn["reward"] == places).all()
        by_definition = (20 * expected[places]) ** -0.5
        np.testing.assert_allclose(weights, by_definition / by_definition.max(), rtol=1e-5)
        counts += np.bincount(places, minlength=20)
    # Shares are drawn from in turn, so the spread is below that of independent draws.
    spread = np.sqrt(expected * (1 - expected) / (2000 * 64))
    assert (np.abs(counts / counts.sum() - expected) < 4 * spread + 1e-9).all()


def test_it_is_sorted_after_as_many_changes_as_places():
    buffer = filled(16, added=0)
    buffer.add(numbered(0, 8))
    buffer.update(np.arange(7), np.array([3, 1, 4, 1, 5, 9, 2], np.float32))
    priorities = buffer.heap.priorities
    before = priorities[buffer.heap.places[:8]]
    buffer.update(np.array([7]), np.array([2.5], np.float32))
    assert priorities[buffer.heap.places[:8]].tolist() == [9, 5, 4, 3, 2.5, 2, 1, 1]
    assert sorted(before, reverse=True) != before.tolist()


def test_only_what_was_added_is_drawn():
    assert set(filled(1000, added=3).sample(300, 0.5)[1]) == {0, 1, 2}


@pytest.mark.parametrize("added", [0, 13, 70])
def test_going_on_from_a_saved_state(added):
    buffer = filled(40, added=added)
    if added:
        buffer.update(np.arange(5), np.arange(5, dtype=np.float32))
    other = RankReplayBuffer(40, TYPE, seed=9)
    other.add(numbered(0, 3))
    other.load_state(buffer.state())
    for one in (buffer, other):
        one.add(numbered(added, 4))
        one.update(np.arange(3), np.array([7, 0.5, 3], np.float32))
    for mine, theirs in zip(buffer.sample(30, 0.7), other.sample(30, 0.7), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("places", lambda array: changed(array, 0, 3), "each of the filled ones once"),
        ("places", lambda array: changed(array, slice(0, 2), array[1::-1]), "order of a heap"),
        ("priorities", lambda array: changed(array, 2, np.nan), "order of a heap"),
        ("priorities", lambda array: changed(array, 2, -1), "at least 0"),
        ("greatest", lambda array: changed(array, 0, 0.5), "not those of a buffer"),
        ("places", lambda array: array[:-1], "places of the state is"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(name, change, says):
    buffer = filled(8, added=5)
    buffer.update(np.arange(5), np.array([1, 2, 3, 4, 5], np.float32))
    before = buffer.state()
    with pytest.raises(ValueError, match=says):
        buffer.load_state({**before, name: change(before[name])})
    for field, array in buffer.state().items():
        np.testing.assert_array_equal(array, before[field])


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="alpha must be"):
        RankReplayBuffer(4, TYPE, seed=0, alpha=2)
    buffer = filled(8, added=3)
    for places, priorities, says in (
        ([0, 1], [1, np.nan], "priority 1 is nan"),
        ([0, 3], [1, 1], "place 1 is 3, but the buffer has 3 transitions"),
        ([0, 1], [1], "one priority for each place"),
    ):
        with pytest.raises(ValueError, match=says):
            buffer.update(np.array(places), np.array(priorities, np.float32))
    assert buffer.heap.priorities.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="beta must be between 0 and 1"):
        buffer.sample(3, -0.1)
