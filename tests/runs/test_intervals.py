"""Intervals of counts and means: against SciPy, and by how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from velocirl.runs.intervals import exact_share, mean_cost, student_t


@pytest.mark.parametrize("confidence", [0.95, 0.975])
@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 31, 200])
def test_the_quantile_of_students_t(degrees, confidence):
    assert student_t(degrees, confidence) == pytest.approx(stats.t.ppf((1 + confidence) / 2, degrees), rel=1e-9)


@pytest.mark.parametrize(("count", "episodes"), [(0, 1), (1, 1), (0, 50), (3, 50), (1, 500), (499, 500), (7, 20_000)])
@pytest.mark.parametrize("confidence", [0.95, 0.975])
def test_the_exact_interval_of_a_share(count, episodes, confidence):
    known = stats.binomtest(count, episodes).proportion_ci(confidence, "exact")
    assert exact_share(count, episodes, confidence) == pytest.approx((known.low, known.high), rel=1e-6)


@pytest.mark.parametrize(("count", "episodes"), [(-1, 3), (4, 3), (0, 0)])
def test_counts_that_cannot_be(count, episodes):
    with pytest.raises(ValueError, match="count from 0 to the number of episodes"):
        exact_share(count, episodes)


@pytest.mark.parametrize("share", [1 / 500, 0.02, 0.3])
@pytest.mark.parametrize("episodes", [50, 500])
def test_a_share_lies_within_its_interval_in_95_of_100_evaluations(share, episodes):
    """By the probability of each count, so without chance."""
    counts = np.arange(episodes + 1)
    likely = stats.binom.pmf(counts, episodes, share)
    held = [likely[k] for k in counts if likely[k] > 1e-9 and within(share, exact_share(int(k), episodes))]
    assert sum(held) >= 0.95


@pytest.mark.parametrize("share", [1 / 500, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("episodes", [50, 500])
def test_a_mean_cost_lies_within_its_interval_in_95_of_100_evaluations(share, episodes):
    drawn, held, times = np.random.default_rng(1), 0, 400
    for _ in range(times):
        costs = np.where(drawn.random(episodes) < share, drawn.exponential(5.0, episodes), 0.0)
        held += within(5.0 * share, mean_cost(costs)[1:])
    assert held / times >= 0.95


def test_too_few_costs_have_no_upper_end():
    assert mean_cost([0.0] * 50) == (0.0, 0.0, math.inf)
    assert mean_cost([0.0] * 49 + [5.0]) == (0.1, 0.0, math.inf)
    assert mean_cost([math.nan, 1.0, 1.0]) == (math.inf, 0.0, math.inf)
    mean, low, high = mean_cost([0.0] * 8 + [4.0, 6.0])
    assert 0.0 < mean == 1.0 < high < math.inf
    assert low < 1.0


def within(truth, ends):
    return ends[0] <= truth <= ends[1]
