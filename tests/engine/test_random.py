"""Random streams: the generator against a reference, its distributions, and their independence."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import velocirl
from velocirl import float32, int64, random, record

MASK = 2**64 - 1
words = some.integers(0, MASK)

# The first outputs of xoroshiro128++ from the state (1, 2), as published with Rust's rand_xoshiro.
PUBLISHED = [
    393217,
    669327710093319,
    1732421326133921491,
    11394790081659126983,
    9555452776773192676,
    3586421180005889563,
    1691397964866707553,
    10735626796753111697,
    15216282715349408991,
    14247243556711267923,
]


class Reference:
    """Xoroshiro128++ written from the paper (Blackman and Vigna, 2019), with Python's integers."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    @staticmethod
    def rotated(word, left):
        digits = f"{word:064b}"
        return int(digits[left:] + digits[:left], 2)

    def next(self):
        result = (self.rotated((self.first + self.second) % 2**64, 17) + self.first) % 2**64
        mixed = self.first ^ self.second
        self.first = self.rotated(self.first, 49) ^ mixed ^ (mixed * 2**21 % 2**64)
        self.second = self.rotated(mixed, 28)
        return result


@record
class Draws:
    value: float32
    word: int64
    unit: float32
    ranged: float32
    gauss: float32
    wide_gauss: float32
    die: int64
    signed: int64
    large: int64


LARGE = 3 * 2**29  # of 2^32: a remainder modulo this would hit the lower two thirds half as often again


def draw(state, params, action, rng):
    state.word = random.bits(rng) >> 1  # 63 bits, so that both kinds of integers hold them
    state.unit = random.uniform(rng)
    state.ranged = random.uniform(rng, -3.0, 5)
    state.gauss = random.normal(rng)
    state.wide_gauss = random.normal(rng, 2, 0.5)
    state.die = random.integer(rng, 0, 6)
    state.signed = random.integer(rng, -5, 5)
    state.large = random.integer(rng, 0, LARGE)
    return 0.0, False


def drawn(environment, copies, steps=1, device="cpu", seed=1):
    """The draws of every copy and step, (steps, copies)."""
    envs = velocirl.make_vec(environment, copies, seed=seed, device=device)
    envs.reset()
    rows = []
    for _ in range(steps):
        envs.step(np.zeros(copies, np.int32))
        rows.append(np.array(envs.copies.state))
    return np.array(rows), np.array(envs.copies.rng)


@pytest.fixture(scope="module")
def environment(define):
    return define(state=Draws, step=draw)


@pytest.fixture(scope="module")
def sample(environment):
    """A million draws of each kind, of many streams and many steps each."""
    return drawn(environment, 50_000, 20)[0]


def rng(first, second):
    return np.array([first, second], np.uint64)


def chi_square_is_plausible(counts, expected=None):
    """Whether counts lie within 5 standard deviations of what chance gives."""
    expected = np.sum(counts) / len(counts) if expected is None else expected
    freedom = len(counts) - 1
    excess = np.sum((counts - expected) ** 2 / expected) - freedom
    return abs(excess) < 5 * math.sqrt(2 * freedom)


def test_the_generator_is_the_published_one():
    reference, ours = Reference(1, 2), rng(1, 2)
    assert [reference.next() for _ in PUBLISHED] == PUBLISHED
    assert [random.bits(ours) for _ in PUBLISHED] == PUBLISHED


@given(words, words)
def test_the_generator_is_the_reference_from_any_state(first, second):
    reference, ours = Reference(first, second), rng(first, second)
    assert [random.bits(ours) for _ in range(5)] == [reference.next() for _ in range(5)]
    assert ours.tolist() == [reference.first, reference.second]


def test_plain_python_and_compiled_code_draw_the_same(environment):
    (plain, plain_rng), (compiled, compiled_rng) = (drawn(environment, 40, 25, device) for device in ("python", "cpu"))
    np.testing.assert_array_equal(plain_rng, compiled_rng)
    for name in ("word", "unit", "die", "signed", "large"):
        np.testing.assert_array_equal(plain[name], compiled[name], err_msg=name)
    for name in ("ranged", "gauss", "wide_gauss"):  # arithmetic after the draw may round differently
        np.testing.assert_allclose(plain[name], compiled[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_compiled_words_are_the_references(environment):
    rows, _ = drawn(environment, 3)
    for row, start in zip(rows[0], random.streams(1, 3), strict=True):
        assert row["word"] == Reference(*map(int, start)).next() >> 1


@given(words, words)
def test_uniform_numbers_are_the_upper_24_bits(first, second):
    expected = Reference(first, second).next() >> 40
    assert random.uniform(rng(first, second)) == expected / 2**24


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (-0.05, 0.05), (10, 11), (-3, 5), (1000.0, 1001.0)])
def test_uniform_numbers_never_reach_the_upper_end(low, high):
    smallest, largest = rng(0, 0), rng(0, MASK)  # states whose next 64 bits are all 0 and all 1
    assert random.uniform(smallest, low, high) == low
    assert low <= random.uniform(largest, low, high) < high


def test_uniform_numbers_are_uniform(sample):
    units = sample["unit"].ravel()
    assert units.min() >= 0.0
    assert units.max() < 1.0
    deviations = 1 / math.sqrt(len(units))
    assert abs(units.mean(dtype=np.float64) - 1 / 2) < 5 * deviations / math.sqrt(12)
    assert abs(units.var(dtype=np.float64) - 1 / 12) < 5 * deviations / math.sqrt(180)
    assert chi_square_is_plausible(np.histogram(units, 1000, (0, 1))[0])


def test_uniform_numbers_of_a_range_are_uniform_there(sample):
    ranged = sample["ranged"].ravel()
    assert ranged.min() >= -3.0
    assert ranged.max() <= 5.0
    assert chi_square_is_plausible(np.histogram(ranged, 800, (-3, 5))[0])


def test_normal_numbers_are_normal(sample):
    for name, mean, deviation in (("gauss", 0.0, 1.0), ("wide_gauss", 2.0, 0.5)):
        values = np.sort(sample[name].ravel()[:200_000].astype(np.float64))
        standard = (values - mean) / deviation
        expected = 0.5 * (1 + np.vectorize(math.erf)(standard / math.sqrt(2)))
        steps = np.arange(len(values) + 1) / len(values)
        distance = max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))  # Kolmogorov and Smirnov's
        assert distance * math.sqrt(len(values)) < 1.95  # exceeded once in a thousand
        assert abs(standard.mean()) < 5 / math.sqrt(len(values))
        assert abs(standard.var() - 1) < 5 * math.sqrt(2 / len(values))
        assert 3.9 < np.abs(standard).max() < 5.8  # the tail is there, and ends where 24 bits end


def test_normal_numbers_are_finite_at_the_ends_of_the_uniform_ones():
    for state in (rng(0, 0), rng(0, MASK), rng(MASK, 0), rng(MASK, MASK)):
        assert abs(random.normal(state)) < 5.8


def test_integers_take_every_value_of_their_range_equally_often(sample):
    for name, low, high in (("die", 0, 6), ("signed", -5, 5)):
        values, counts = np.unique(sample[name], return_counts=True)
        np.testing.assert_array_equal(values, np.arange(low, high))
        assert chi_square_is_plausible(counts)


def test_integers_of_a_large_range_have_no_visible_bias(sample):
    large = sample["large"].ravel()
    assert large.min() >= 0
    assert large.max() < LARGE
    assert chi_square_is_plausible(np.histogram(large, 3 * 64, (0, LARGE))[0])
    assert chi_square_is_plausible(np.bincount(large % 64))


@given(words, words, some.integers(-(2**31), 2**31), some.integers(1, 2**31 - 1))
def test_integers_lie_in_their_range(first, second, low, size):
    assert low <= random.integer(rng(first, second), low, low + size) < low + size


def test_an_integer_of_one_choice_is_that_choice_and_still_draws():
    state = rng(1, 2)
    assert random.integer(state, 7, 8) == 7
    assert state.tolist() != [1, 2]


def test_a_hundred_thousand_copies_have_streams_of_their_own():
    for seed in (0, 1, MASK):
        assert len(np.unique(random.streams(seed, 100_000))) == 200_000


def test_streams_of_many_seeds_are_distinct():
    states = np.concatenate([random.streams(seed, 100) for seed in range(1000)])
    assert len(np.unique(states, axis=0)) == 100_000
    assert len(np.unique(random.streams(range(100_000), 100_000), axis=0)) == 100_000


@given(words, some.integers(1, 50))
def test_a_stream_depends_on_seed_and_copy_only(seed, count):
    many = random.streams(seed, 50)
    np.testing.assert_array_equal(random.streams(seed, count), many[:count])
    np.testing.assert_array_equal(random.streams([seed] * 3, 3), [many[0]] * 3)
    assert not (many == 0).all(axis=1).any()


def correlation(one, other):
    return abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) * math.sqrt(one.size)


def test_neighbouring_copies_steps_and_seeds_are_independent(environment, sample):
    units = sample["unit"]
    assert correlation(units[:, 1:], units[:, :-1]) < 5  # copies
    assert correlation(units[1:], units[:-1]) < 5  # steps
    assert correlation(units, sample["ranged"]) < 5  # successive draws
    other, _ = drawn(environment, 50_000, 20, seed=2)
    assert correlation(units, other["unit"]) < 5  # seeds
    assert correlation(sample["gauss"] ** 2, other["gauss"] ** 2) < 5


def test_every_bit_of_a_word_is_fair(sample):
    words = sample["word"].ravel()
    for bit in range(63):
        share = np.mean(words >> bit & 1)
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(len(words)), bit
