"""Actions are chosen with the probabilities that their way says, compiled and in plain Python alike."""

from math import exp, log

import numpy as np
import pytest
from choosing import slow_but
from garnet import ACTIONS, STATES
from scipy.stats import chisquare
from tabular_cases import made

from velocirl.engine import random
from velocirl.tabular.tables.exploring import WAYS, exploring
from velocirl.tabular.tables.rules import single_value
from velocirl.tabular.tables.table import row_type

VALUES = np.array([0.3, 0.5, -0.2, 0.5, 0.1])
MASKS = {
    "all": np.ones(5, np.int8),
    "some": np.array([1, 0, 1, 1, 0], np.int8),
    "ties": np.array([0, 1, 0, 1, 1], np.int8),
}
DRAWS = 2000
UNLIKELY = 1e-3  # of a sound generator, with these seeds


def row_of(values, visits=None):
    rows = np.zeros(1, row_type(len(values), visits=True, dtype="float64"))
    rows["values"] = values
    if visits is not None:
        rows["visits"] = visits
    return rows.view(np.recarray)


def way_of(name, masked=True, actions=5):
    return exploring(name, actions, masked, single_value)


def drawn(way, rows, mask, rate, draws=DRAWS):
    rng = random.streams(7, 1)[0]
    choices = [way.choose(rows, 0, mask, rng, rate) for _ in range(draws)]
    assert {best for _, best in choices} == {rows.values[0][mask != 0].max()}
    return np.bincount([action for action, _ in choices], minlength=len(mask))


def epsilon_probabilities(values, mask, rate):
    legal = mask != 0
    best = legal & (values == values[legal].max())
    return (1 - rate) * best / best.sum() + rate * legal / legal.sum()


def softmax_probabilities(values, mask, rate):
    weights = np.array([exp(value / rate) if allowed else 0.0 for value, allowed in zip(values, mask, strict=True)])
    return weights / weights.sum()


PROBABILITIES = {"epsilon_greedy": epsilon_probabilities, "softmax": softmax_probabilities}


def assert_as_likely(counts, probabilities):
    assert (counts[probabilities == 0] == 0).all()
    possible = probabilities > 0
    if possible.sum() == 1:
        return
    assert chisquare(counts[possible], counts.sum() * probabilities[possible]).pvalue > UNLIKELY


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("name", "rate"), [("epsilon_greedy", 0.0), ("epsilon_greedy", 0.3), ("epsilon_greedy", 1.0), ("softmax", 0.3)]
)
def test_frequencies_and_expectations(name, rate, mask):
    probabilities = PROBABILITIES[name](VALUES, MASKS[mask], rate)
    way, rows = way_of(name), row_of(VALUES)
    assert_as_likely(drawn(way, rows, MASKS[mask], rate), probabilities)
    assert way.expected(rows, 0, MASKS[mask], rate) == pytest.approx(probabilities @ VALUES, abs=1e-7)
    assert way.best(rows, 0, MASKS[mask]) == VALUES[MASKS[mask] != 0].max()


@pytest.mark.parametrize("name", ["epsilon_greedy", "softmax"])
def test_without_masks_all_are_legal(name):
    rows, nothing = row_of(VALUES), np.zeros(1, np.int8)
    rng = random.streams(1, 1)[0]
    way = way_of(name, masked=False)
    counts = np.bincount([way.choose(rows, 0, nothing, rng, 1.0)[0] for _ in range(DRAWS)], minlength=5)
    assert_as_likely(counts, PROBABILITIES[name](VALUES, np.ones(5), 1.0))


def test_a_temperature_of_nothing_chooses_the_best():
    way, rows = way_of("softmax"), row_of(VALUES)
    assert_as_likely(drawn(way, rows, MASKS["all"], 0.0), np.array([0, 0.5, 0, 0.5, 0]))
    assert way.expected(rows, 0, MASKS["all"], 0.0) == pytest.approx(0.5)
    assert way.expected(row_of(1000 * VALUES), 0, MASKS["all"], 1.0) == pytest.approx(500)  # no overflow


def test_greedy_breaks_ties_evenly():
    way, rows, rng = way_of("epsilon_greedy"), row_of(VALUES), random.streams(3, 1)[0]
    counts = np.bincount([way.greedy(rows, 0, MASKS["all"], rng) for _ in range(DRAWS)], minlength=5)
    assert_as_likely(counts, np.array([0, 0.5, 0, 0.5, 0]))


def test_ucb_takes_the_highest_bound():
    way, numbers, rng = way_of("ucb"), np.random.default_rng(0), random.streams(0, 1)[0]
    for _ in range(200):
        values, visits, rate = numbers.normal(size=5), numbers.integers(1, 50, 5), numbers.uniform(0, 3)
        mask = numbers.permutation(MASKS["some"])
        bounds = values + rate * np.sqrt(log(visits.sum()) / visits)
        expected = np.where(mask != 0, bounds, -np.inf).argmax()
        rows = row_of(values, visits)
        action, best = way.choose(rows, 0, mask, rng, rate)
        assert action == expected
        assert best == values[mask != 0].max()
        assert way.expected(rows, 0, mask, rate) == values[expected]


def test_ucb_tries_each_before_any_again():
    way, rng = way_of("ucb"), random.streams(5, 1)[0]
    firsts = []
    for _ in range(500):
        rows, tried = row_of(10 * VALUES), []
        for _ in range(3):
            action, _ = way.choose(rows, 0, MASKS["some"], rng, 2.0)
            rows[0].visits[action] += 1
            tried.append(action)
        assert sorted(tried) == [0, 2, 3]
        firsts.append(tried[0])
    assert_as_likely(np.bincount(firsts, minlength=5), np.array([1, 0, 1, 1, 0]) / 3)


@pytest.mark.parametrize("name", WAYS)
def test_where_nothing_is_legal_something_is_said(name):
    """The value of a state whose mask is not known is not used, but it must not stop anything."""
    way = way_of(name)
    action, _ = way.choose(row_of(VALUES), 0, np.zeros(5, np.int8), random.streams(0, 1)[0], 0.5)
    assert action == 0


@pytest.mark.parametrize("dtype", slow_but({"float32"}, ["float32", "float64"]))
@pytest.mark.parametrize("name", WAYS)
def test_compiled_as_in_python(name, dtype):
    """The same streams give the same actions, and 20,000 in each state the shares that they should have."""
    values = np.random.default_rng(1).normal(size=(STATES, ACTIONS)).round(1)
    values[2] = [0.5, -1, 0.5]
    agent = made("q-learning", dtype=dtype, exploration=name, exploration_rate=0.7, exploration_schedule="constant")
    agent.table.values[:] = values
    if name == "ucb":
        agent.table.arrays.rows["visits"] = np.random.default_rng(2).integers(0, 9, (STATES, ACTIONS))
    masks = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 0], [0, 1, 1], [1, 1, 0]], np.int8)
    states = np.tile(np.arange(STATES), 100)
    rng, rows = agent._acting[0].copy(), agent.table.arrays.rows.view(np.recarray)
    expected = [agent.exploring.choose(rows, state, masks[state], rng, np.float32(0.7))[0] for state in states]
    np.testing.assert_array_equal(agent.predict(states, action_masks=masks[states])[0], expected)
    if name in PROBABILITIES:
        for state in range(STATES):
            observed = np.full(20_000, state)
            actions, _ = agent.predict(observed, action_masks=masks[observed])
            probabilities = PROBABILITIES[name](values[state], masks[state], 0.7)
            assert_as_likely(np.bincount(actions, minlength=ACTIONS), probabilities)
