"""Change points: planted steps are found where they are; noise, drifts and outliers are none."""

import itertools

import numpy as np
import pytest

from velocirl.bench.history.change_points import (
    FEWEST_OF_A_LEVEL,
    FEWEST_RUNS,
    SIGNIFICANCE,
    find_steps,
    noise,
    partition,
    step_gains,
    without_outliers,
)


def places(logs):
    return [step.place for step in find_steps(np.exp(logs))]


def planted(random, count, deviation, *steps):
    """Logarithms with noise and with steps, each a place and a ratio."""
    levels = sum((np.log(ratio) * (np.arange(count) >= place) for place, ratio in steps), np.zeros(count))
    return random.normal(0.0, deviation, count) + levels


def found_rate(deviation, place, ratio, count=40, series=60):
    """How often a step is found within one run of its place, and no other one is."""
    random = np.random.default_rng(11)
    found = [places(planted(random, count, deviation, (place, ratio))) for _ in range(series)]
    return np.mean([len(one) == 1 and abs(one[0] - place) <= 1 for one in found])


@pytest.mark.parametrize(
    ("deviation", "ratio", "place"),
    [(0.01, 1.05, 20), (0.02, 1.1, 20), (0.02, 0.9, 36), (0.02, 1 / 1.2, 20), (0.045, 1.2, 28)],
)
def test_steps_are_found_within_one_run_of_their_place(deviation, ratio, place):
    assert found_rate(deviation, place, ratio) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("deviation", "ratio"), [(0.01, 1.05), (0.01, 0.95), (0.02, 1.1), (0.02, 0.9), (0.045, 1.2)])
@pytest.mark.parametrize("place", [12, 20, 30, 36])
def test_steps_are_found_within_one_run_of_their_place_in_many_series(deviation, ratio, place):
    """From four times the noise on; smaller ones need more runs, so that a drift is not taken for them."""
    assert found_rate(deviation, place, ratio, series=120) >= 0.95


@pytest.mark.slow
def test_small_steps_are_placed_nearly_as_well_as_can_be():
    """A step of 2.4 times the noise: not even who knows that there is one places it within one run always."""
    random = np.random.default_rng(12)
    series = np.array([planted(random, 80, 0.02, (40, 1.05)) for _ in range(100)])
    best = np.abs(step_gains(series).argmax(axis=1) + FEWEST_OF_A_LEVEL - 40) <= 1
    ours = [any(abs(place - 40) <= 1 for place in places(one)) for one in series]
    assert 0.85 < best.mean() < 0.98
    assert np.mean(ours) > 0.9 * best.mean()


def nothing(random, count):
    return random.normal(0.0, 0.03, count)


def heavy_tails(random, count):
    return 0.02 * random.standard_t(3, count)


def drift(random, count):
    return random.normal(0.0, 0.02, count) + np.linspace(0.0, 0.1, count)


def steep_drift(random, count):
    return random.normal(0.0, 0.02, count) - np.linspace(0.0, 0.4, count)


def outlier(random, count):
    return random.normal(0.0, 0.03, count) + 0.5 * (np.arange(count) == random.integers(count))


def two_outliers(random, count):
    place = random.integers(count - 1)
    return random.normal(0.0, 0.03, count) - 0.5 * ((np.arange(count) == place) | (np.arange(count) == place + 1))


QUIET = [nothing, heavy_tails, drift, steep_drift, outlier, two_outliers]


@pytest.mark.parametrize("make", QUIET)
def test_what_is_no_step_is_hardly_ever_taken_for_one(make):
    random = np.random.default_rng(13)
    assert np.mean([bool(places(make(random, 30))) for _ in range(60)]) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("make", QUIET)
@pytest.mark.parametrize("count", [12, 40])
def test_what_is_no_step_is_hardly_ever_taken_for_one_in_many_series(make, count):
    random = np.random.default_rng(14)
    assert np.mean([bool(places(make(random, count))) for _ in range(200)]) <= 0.05


def test_several_steps_up_and_down_again():
    random = np.random.default_rng(15)
    found = [places(planted(random, 48, 0.015, (12, 1.1), (26, 1 / 1.1), (38, 0.85))) for _ in range(20)]
    right = [len(one) == 3 and np.abs(np.subtract(one, (12, 26, 38))).max() <= 1 for one in found]
    assert np.mean(right) >= 0.95


def test_a_step_beside_an_outlier_keeps_its_place():
    random = np.random.default_rng(16)
    series = [planted(random, 40, 0.02, (20, 0.85)) + 0.6 * (np.arange(40) == random.integers(40)) for _ in range(30)]
    assert np.mean([any(abs(place - 20) <= 1 for place in places(one)) for one in series]) >= 0.95


def test_the_ratio_and_its_interval():
    random = np.random.default_rng(17)
    series = [find_steps(np.exp(planted(random, 40, 0.01, (20, 0.9)))) for _ in range(40)]
    steps = [min(one, key=lambda step: abs(step.place - 20)) for one in series]
    ratios = [step.ratio for step in steps]
    np.testing.assert_allclose([ratio.median for ratio in ratios], 0.9, rtol=0.02)
    assert np.mean([ratio.low <= 0.9 <= ratio.high for ratio in ratios]) >= 0.85
    assert all(ratio.high - ratio.low < 0.04 for ratio in ratios)
    assert all(0.0 < step.p_value <= SIGNIFICANCE for step in steps)


def test_figures_without_any_noise():
    assert places(np.zeros(30)) == []
    assert places(np.linspace(0.0, 1.0, 30)) == []
    assert places(np.log([138.0] * 8 + [144.0] * 6)) == [8]
    (step,) = find_steps([138.0] * 8 + [144.0] * 6)
    assert (step.ratio.median, step.ratio.low) == (pytest.approx(144 / 138), pytest.approx(144 / 138))


def test_the_same_figures_give_the_same_steps_and_the_scale_does_not_matter():
    figures = np.exp(planted(np.random.default_rng(18), 40, 0.02, (15, 1.1)))
    first = find_steps(figures)
    assert find_steps(figures) == first
    for factor in (1e-12, 1e12):
        assert [step.place for step in find_steps(factor * figures)] == [step.place for step in first]
    (down,) = find_steps(1.0 / figures)
    assert down.ratio.median == pytest.approx(1.0 / first[0].ratio.median)


def test_too_few_runs_have_no_steps():
    step = [1.0] * 6 + [2.0] * 6
    assert len(step) == FEWEST_RUNS
    assert [one.place for one in find_steps(step)] == [6]
    assert find_steps(step[:-1]) == find_steps([]) == []


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_only_positive_figures_have_ratios(wrong):
    with pytest.raises(ValueError, match="positive and finite"):
        find_steps([1.0] * 12 + [wrong])


@pytest.mark.parametrize("seed", range(6))
def test_the_partition_is_the_best_of_all(seed):
    random = np.random.default_rng(seed)
    values, penalty = random.normal(0.0, 1.0, 13) + 2.0 * (np.arange(13) > 6), (0.5, 3.0)[seed % 2]
    starts = range(1, len(values))
    every = itertools.chain.from_iterable(itertools.combinations(starts, count) for count in range(5))

    def cost(starts):
        parts = np.split(values, starts)
        if min(map(len, parts)) < FEWEST_OF_A_LEVEL:
            return np.inf
        return sum(((part - part.mean()) ** 2).sum() for part in parts) + penalty * len(starts)

    assert tuple(partition(values, penalty)) == min(every, key=cost)


def test_the_gain_of_a_step_is_what_a_t_test_says():
    stats = pytest.importorskip("scipy.stats")
    rows = np.random.default_rng(19).normal(0.0, 1.0, (4, 12))
    gains = step_gains(rows)
    assert gains.shape == (4, 12 - 2 * FEWEST_OF_A_LEVEL + 1)
    for row, place in itertools.product(range(4), range(gains.shape[1])):
        before, after = np.split(rows[row], [FEWEST_OF_A_LEVEL + place])
        total = ((rows[row] - rows[row].mean()) ** 2).sum()
        t = stats.ttest_ind(before, after).statistic
        assert gains[row, place] == pytest.approx(total * t**2 / (t**2 + 10))  # t² = 10 gain / (total - gain)


def test_noise_and_outliers():
    random = np.random.default_rng(20)
    values = planted(random, 4000, 0.02, (2000, 2.0))
    assert noise(values) == pytest.approx(0.02, rel=0.1)
    steps = np.repeat([0.0, 1.0, 0.0], [10, 3, 10]) + random.normal(0.0, 0.01, 23)
    np.testing.assert_allclose(without_outliers(steps), steps, atol=0.04)
    steps[4] = 5.0
    assert abs(without_outliers(steps)[4]) < 0.1
