"""Selecting records in compiled loops: as often as priorities say, and the same as by the buffers' own methods."""

import numpy as np
import pytest

from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.rank_based import RankReplayBuffer
from velocirl.buffers.records import Act, transition_type
from velocirl.buffers.replay import PLACE, ReplayBuffer, written
from velocirl.engine.compiler.compiling import compile_loop, learning_translator

TYPE = transition_type(1, Act(1, "int32", 0))
BATCH, COPIES = 64, 4
PRIORITISED = {"proportional": PrioritisedReplayBuffer, "rank": RankReplayBuffer}


class InALoop:
    """A buffer that is used by its selection, as a learner does."""

    def __init__(self, buffer):
        self.buffer = buffer
        (enter, draw, revise), self._book = buffer.selection(BATCH)

        def add(rows, counts, book, count):
            first = counts[PLACE]
            written(counts, len(rows), count)
            enter(book, counts, first, count)

        def select(book, counts, rng, beta, places, weights):
            draw(book, counts, rng, beta, places, weights)

        def change(book, counts, places, errors):
            revise(book, counts, places, errors)

        places, numbers = np.zeros(BATCH, np.int64), np.zeros(BATCH, np.float32)
        self._add = self._compile(add, buffer.rows, buffer.counts, self._book, 1)
        self._select = self._compile(select, self._book, buffer.counts, buffer.rng, 1.0, places, numbers)
        self._change = self._compile(change, self._book, buffer.counts, places, numbers)

    def add(self, records):
        first = self.buffer.counts[PLACE]
        self.buffer.rows[first : first + len(records)] = records
        self._add(self.buffer.rows, self.buffer.counts, self._book, len(records))

    def sample(self, beta):
        places, weights = np.zeros(BATCH, np.int64), np.zeros(BATCH, np.float32)
        self._select(self._book, self.buffer.counts, self.buffer.rng, beta, places, weights)
        return places, weights

    def update(self, places, errors):
        self._change(self._book, self.buffer.counts, places, errors)
        self.buffer.tidy()

    def _compile(self, loop, *arguments):
        return compile_loop(loop, arguments, learning_translator("replay"), before=lambda: None)


@pytest.mark.parametrize("kind", PRIORITISED)
def test_the_same_as_by_the_buffer_itself(kind):
    """Groups through the seam several times, with draws and new priorities between: equal to the last bit."""
    one, other = InALoop(PRIORITISED[kind](40, TYPE, seed=3)), PRIORITISED[kind](40, TYPE, seed=3)
    generator = np.random.default_rng(0)
    for number in range(60):
        records = np.zeros(COPIES, TYPE)
        records["reward"] = number
        one.add(records)
        other.add(records)
        places, weights = one.sample(0.5)
        _, wanted, wanted_weights = other.sample(BATCH, 0.5)
        np.testing.assert_array_equal(places, wanted)
        np.testing.assert_array_equal(weights, wanted_weights)
        errors = generator.normal(size=BATCH).astype(np.float32)
        one.update(places, errors)
        other.update(places, errors)
    for name, array in other.state().items():
        np.testing.assert_array_equal(one.buffer.state()[name], array)


def drawn(kind, alpha, errors):
    """How often each place is drawn in 400 batches, and the products of errors and weights in the last of them."""
    loop = InALoop(PRIORITISED[kind](len(errors), TYPE, seed=1, alpha=alpha))
    for _ in range(len(errors) // COPIES):
        loop.add(np.zeros(COPIES, TYPE))
    for start in range(0, len(errors), BATCH):
        places = np.arange(start, start + BATCH)
        loop.update(places, errors[places])
    counts, products = np.zeros(len(errors)), np.zeros(0)
    for _ in range(400):
        places, weights = loop.sample(1.0)
        counts += np.bincount(places, minlength=len(errors))
        products = errors[places] * weights
        assert weights.max() == 1
    return counts, products


def close_to(counts, shares):
    """Within five deviations of a binomial; a draw from each of equal shares deviates less."""
    expected = counts.sum() * shares
    return np.abs(counts - expected) <= 5 * np.sqrt(expected) + 1


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_in_proportion(alpha):
    errors = np.random.default_rng(0).exponential(size=128).astype(np.float32)
    counts, _ = drawn("proportional", alpha, errors)
    shares = (errors + 1e-6) ** alpha
    assert close_to(counts, shares / shares.sum()).all()


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_frequencies_by_rank(alpha):
    errors = np.random.default_rng(0).exponential(size=128).astype(np.float32)
    loop = InALoop(RankReplayBuffer(128, TYPE, seed=1, alpha=alpha))
    for _ in range(128 // COPIES):
        loop.add(np.zeros(COPIES, TYPE))
    for start in (0, BATCH):
        loop.update(np.arange(start, start + BATCH), errors[start : start + BATCH])
    loop.buffer.sort()
    counts = sum(np.bincount(loop.sample(1.0)[0], minlength=128) for _ in range(400))
    shares = np.empty(128)
    shares[np.argsort(-errors)] = np.arange(1, 129) ** -alpha
    assert close_to(counts, shares / shares.sum()).all()


def test_weights_undo_the_priorities():
    """With beta 1, what is drawn twice as often counts half as much: in a batch, errors times weights are all alike."""
    counts, products = drawn("proportional", 1.0, np.linspace(1, 4, 128).astype(np.float32))
    assert (counts > 0).all()
    np.testing.assert_allclose(products, products[0], rtol=1e-5)


def test_uniform_selection_has_weights_of_one():
    loop = InALoop(ReplayBuffer(8, TYPE, seed=0))
    loop.add(np.zeros(COPIES, TYPE))
    places, weights = loop.sample(0.5)
    assert set(places) == {0, 1, 2, 3}
    assert (weights == 1).all()
