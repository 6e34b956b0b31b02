import numpy as np
import pytest
from planted_tuning import TOTAL, measured, trial
from scipy import stats

from velocirl.bench.tuning.evidence import (
    Measured,
    difference,
    expected_seconds,
    expected_steps,
    goal_of,
    sooner,
    speed_ratio,
)


def test_a_difference_has_the_interval_that_scipy_finds():
    rng = np.random.default_rng(5)
    first, second = rng.normal(10.0, 2.0, 12), rng.normal(7.0, 3.0, 9)
    found = difference(first.tolist(), second.tolist())
    wanted = stats.bootstrap(
        (first, second), lambda a, b, axis: a.mean(axis) - b.mean(axis), method="percentile", n_resamples=20_000, rng=1
    ).confidence_interval
    assert found.median == pytest.approx(first.mean() - second.mean())
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=0.15)


def test_a_training_that_ends_without_the_quality_has_to_be_paid_for():
    trials = [trial(10.0, at=300), trial(10.0, at=500), trial(4.0)]
    assert expected_steps(trials, 9.0) == (300 + 500 + TOTAL) / 2
    assert expected_steps(trials, 4.0) == (300 + 500 + 500) / 3
    assert expected_steps(trials, 11.0) is None
    assert expected_steps(trials, -1.0) == 100  # at the first look


def test_seconds_are_steps_at_the_measured_speed():
    row = measured(50.0, [10.0, 10.0], at=[300, 500], jitter=0.0)
    assert expected_seconds(row, 9.0) == 400 / 50.0
    assert expected_seconds(row, 11.0) is None
    assert expected_seconds(Measured(row.candidate, trials=row.trials), 9.0) is None  # nobody knows its speed


def test_twice_the_speed_and_half_the_steps_are_four_times_as_soon():
    reference = measured(100.0, [10.0] * 4, at=800, jitter=0.0)
    row = measured(200.0, [10.0] * 4, at=400, name=64, jitter=0.0)
    found = sooner(row, reference, 9.0)
    assert (found.median, found.low, found.high) == (4.0, 4.0, 4.0)


def test_what_differs_from_seed_to_seed_widens_the_interval():
    reference = measured(100.0, [10.0] * 4, at=[300, 500, 700, 900], jitter=0.0)
    row = measured(100.0, [10.0] * 4, at=[200, 400, 600, 800], name=64, jitter=0.0)
    found = sooner(row, reference, 9.0)
    assert found.median == 1.2
    assert found.low < 1.0 < found.high
    assert sooner(row, reference, 11.0) is None


def test_speeds_are_compared_round_by_round():
    reference, row = measured(100.0), measured(100.0, name=2)
    reference.speeds, row.speeds = [100.0, 50.0, 10.0], [200.0, 100.0, 20.0, 999.0]  # an interrupt after the first
    found = speed_ratio(row, reference)
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)
    row.speeds = []
    assert speed_ratio(row, reference) is None


def test_the_tolerance_is_a_share_of_what_was_learnt():
    goal = goal_of(measured(1.0, [90.0, 100.0, 110.0]), 0.02)
    assert (goal.untrained, goal.reached, goal.tolerance, goal.quality) == (0.0, 100.0, 2.0, 98.0)
    below = measured(1.0, [-150.0, -150.0])
    below.trials = [trial(-150.0, untrained=-1150.0)] * 2
    assert goal_of(below, 0.02).quality == -170.0  # returns below 0 have a sensible one too


@pytest.mark.parametrize("finals", [[], [0.0, 0.0, 0.0], [-1.0, -2.0, 0.0], [5.0, -5.0, 0.5], [-np.inf, 3.0, 3.0]])
def test_there_is_no_goal_where_nothing_is_learnt_beyond_noise(finals):
    assert goal_of(measured(1.0, finals), 0.02) is None


def test_an_untrained_policy_that_never_ends_is_no_reason_to_give_up():
    reference = measured(1.0)
    reference.trials = [trial(3.0, untrained=-np.inf), trial(4.0, untrained=1.0)]
    assert goal_of(reference, 0.1).untrained == 1.0
    reference.trials = [trial(3.0, untrained=-np.inf)] * 2
    assert goal_of(reference, 0.1).reached == 3.0


def test_speed_is_that_of_turns_where_there_were_any():
    row = measured(100.0, jitter=0.0)
    row.glance = 400.0
    assert row.rate == 100.0
    row.speeds = []
    assert row.rate == 400.0
    row.glance = None
    assert row.rate == 0.0
    assert row.speed is None
