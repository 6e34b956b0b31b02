"""Which samples make a minibatch: the order of an epoch, and where its samples lie, in plain Python and compiled."""

import numpy as np
import pytest
from scipy import stats

from velocirl.backends.batch.minibatches import Extent, choose, draw, draw_keys, find_start, load_state, shuffled
from velocirl.buffers.records import TERMINATED, TRUNCATED
from velocirl.engine import random
from velocirl.engine.compiler.compiling import compile_loop, learning_translator
from velocirl.engine.records import with_attributes
from velocirl.program.clock import COUNTS, FAULT, MINIBATCH, NUMBERS, STOPPED, Clock


def keys_of(seed, sets=1):
    return np.random.default_rng(seed).integers(0, 2**64, (sets, 4), np.uint64)


@pytest.fixture(scope="module")
def orders():
    """`orders(count, keys)`: the order of every set of keys, compiled."""

    def fill(order, keys):
        for k in range(len(keys)):
            for u in range(order.shape[1]):
                order[k, u] = shuffled(u, order.shape[1], keys[k])

    example = np.zeros((1, 2), np.int32), keys_of(0)
    loop = compile_loop(fill, example, learning_translator("order"), before=lambda: None)

    def orders(count, keys):
        order = np.full((len(keys), count), -1, np.int32)
        loop(order, keys)
        return order

    return orders


def test_an_order_is_a_permutation(orders):
    for count in (*range(1, 301), 511, 512, 513, 4095, 4096, 4097, 10_007, 65_536, 1_000_003):
        for order in orders(count, keys_of(count, sets=3)):
            np.testing.assert_array_equal(np.bincount(order, minlength=count), 1, err_msg=str(count))


def test_extreme_keys_give_permutations_too(orders):
    keys = np.array([[0] * 4, [2**64 - 1] * 4, [2**63] * 4, [1] * 4], np.uint64)
    for count in (1, 2, 3, 96, 129, 1000):
        for order in orders(count, keys):
            assert sorted(order.tolist()) == list(range(count))


def test_plain_python_draws_the_same_order(orders):
    for count in (1, 2, 7, 64, 97):
        keys = keys_of(count)
        assert [int(shuffled(u, count, keys[0])) for u in range(count)] == orders(count, keys)[0].tolist()


def test_other_keys_another_order(orders):
    drawn = orders(96, keys_of(1, sets=500))
    assert len(np.unique(drawn, axis=0)) == 500
    assert set(map(tuple, orders(3, keys_of(2, sets=500)))) == {
        (0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0),
    }  # fmt: skip


@pytest.mark.parametrize("count", [2, 3, 5, 10, 12, 16, 96, 128])
def test_every_place_is_as_likely_as_any(orders, count):
    """Chi-square over the table of who comes where; with random orders it has (count - 1)^2 degrees of freedom."""
    sets = 20_000
    drawn = orders(count, keys_of(count, sets))
    table = np.stack([np.bincount(drawn[:, u], minlength=count) for u in range(count)])
    expected = sets / count
    statistic = ((table - expected) ** 2 / expected).sum() * (count - 1) / count
    assert 1e-3 < stats.chi2.sf(statistic, (count - 1) ** 2) < 0.999


@pytest.mark.parametrize(("copies", "horizon"), [(8, 16), (7, 13), (32, 32)])
def test_minibatches_are_mixed(orders, copies, horizon):
    """How many samples of copy 0, and of step 0, are in the first quarter: as in a draw without replacement."""
    count, sets = copies * horizon, 4000
    rows = count // 4
    drawn = orders(count, keys_of(3, sets))[:, :rows]
    for chosen, size in ((drawn % copies == 0, horizon), (drawn // copies == 0, copies)):
        found = chosen.sum(axis=1)
        expected = stats.hypergeom(count, size, rows)
        assert found.mean() == pytest.approx(expected.mean(), abs=4 * expected.std() / np.sqrt(sets))
        assert 0.9 < found.var() / expected.var() < 1.1


@pytest.mark.parametrize("unit", [1, 6])
def test_every_sample_is_chosen_once_in_an_epoch(unit):
    """For two agents side by side; whole copies lie step by step, as a recurrent network reads."""
    extent, clock = Extent(2, 4, 6, 12, 24 // unit, unit), clock_of(2)
    order, index, starts = np.zeros((2, extent.units), np.int32), np.zeros(24, np.int32), np.full(24, -1, np.float32)
    rows = with_attributes(np.zeros((7, 8), [("ended", np.int8)]))
    rows["ended"][2, 1], rows["ended"][4, 6] = TERMINATED, TRUNCATED
    rng, keys, epochs = random.streams(3, 2), np.zeros((2, 4), np.uint64), []
    for _ in range(2):
        for s in range(2):
            draw_keys(s, s, 0, keys, rng, clock)
        for q in range(2 * extent.units):
            draw(q, q, 0, order, keys)
        seen = []
        for _ in range(2):
            clock.counts[:, MINIBATCH] += 1
            for n in range(24):
                choose(n, n, 0, order, index, clock, extent)
                find_start(n, n, 0, index, rows.reshape(-1), starts, extent)
            t, i = np.divmod(index, 8)
            assert np.all(i[:12] < 4)  # the rows of the first agent, then those of the second
            assert np.all(i[12:] >= 4)
            if unit > 1:
                np.testing.assert_array_equal(t.reshape(2, 6, 2), np.arange(6)[:, None] + np.zeros((2, 6, 2)))
                first = i.reshape(2, 6, 2)
                np.testing.assert_array_equal(first, np.broadcast_to(first[:, :1], first.shape))
            np.testing.assert_array_equal(starts == 1, ((t == 3) & (i == 1)) | ((t == 5) & (i == 6)))
            seen += list(zip(t.tolist(), i.tolist(), strict=True))
        assert len(set(seen)) == len(seen) == 48
        epochs.append(seen)
    assert epochs[0] != epochs[1]


def test_states_are_those_at_the_beginning_of_the_drawn_copies():
    extent, clock = Extent(1, 4, 6, 12, 4, 6), clock_of(1)
    order, index = np.array([[2, 0, 3, 1]], np.int32), np.zeros(12, np.int32)
    start, state = np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros((2, 3), np.float32)
    for place, copies in ((0, [2, 0]), (1, [3, 1])):
        clock.counts[0, MINIBATCH] = place
        for n in range(12):
            choose(n, n, 0, order, index, clock, extent)
        for c in range(2):
            load_state(c, c, 0, index, start, state, extent)
        np.testing.assert_array_equal(state, start[copies])


def test_an_agent_that_was_stopped_draws_no_more():
    """So that its streams are those that it has by itself, whatever happens to others beside it."""
    clock, rng, keys = clock_of(3), random.streams(3, 3), np.zeros((3, 4), np.uint64)
    clock.counts[1, STOPPED], clock.counts[2, FAULT] = 1, 1
    before = rng.copy()
    for s in range(3):
        draw_keys(s, s, 0, keys, rng, clock)
    assert keys.any(axis=1).tolist() == [True, False, False]
    np.testing.assert_array_equal(rng[1:], before[1:])
    assert clock.counts[:, MINIBATCH].tolist() == [-1, -1, -1]


def clock_of(agents):
    return Clock(np.zeros((agents, COUNTS), np.int64), np.zeros((agents, NUMBERS)))
