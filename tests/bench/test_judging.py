import pytest

from velocirl.bench import difference, ratio, value
from velocirl.bench.judging import judge
from velocirl.bench.results import MET, MISSED, NO_TARGET, NOT_MEASURED, UNDECIDED, Measured
from velocirl.bench.units import BYTES, SECONDS, STEPS


def contestants(ours, theirs=()):
    return [Measured("ours", tuple(ours)), Measured("theirs", tuple(theirs))]


@pytest.mark.parametrize(("unit", "expected"), [(STEPS, 2.0), (SECONDS, 0.5)])
def test_a_ratio_above_one_is_better_whatever_the_unit(unit, expected):
    finding = judge(ratio("ours", "theirs"), contestants([20.0] * 5, [10.0] * 5), unit)
    assert finding.estimate.median == expected
    assert finding.verdict == NO_TARGET


def test_a_ratio_is_taken_within_rounds_so_that_shared_slowness_cancels():
    slowed = [1.0, 0.2, 0.5, 1.0, 0.3]
    finding = judge(
        ratio("ours", "theirs", at_least=3.0),
        contestants([40.0 * share for share in slowed], [10.0 * share for share in slowed]),
        STEPS,
    )
    assert (finding.estimate.low, finding.estimate.high) == pytest.approx((4.0, 4.0))
    assert finding.verdict == MET


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [([101.0, 102.0, 103.0], MET), ([97.0, 98.0, 99.0], MISSED), ([99.0, 100.0, 101.0], UNDECIDED)],
)
def test_the_interval_decides(samples, verdict):
    assert judge(value("ours", at_least=100.0), contestants(samples), STEPS).verdict == verdict
    mirrored = [200.0 - sample for sample in samples]
    assert judge(value("ours", at_most=100.0), contestants(mirrored), BYTES).verdict == verdict


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [([300.0, 150.0, 600.0, 400.0], MET), ([300.0, 90.0, 600.0, 400.0], UNDECIDED), ([90.0, 20.0, 50.0], UNDECIDED)],
)
def test_noisy_samples_meet_a_target_all_together_and_never_miss_it(samples, verdict):
    assert judge(value("ours", at_least=100.0), contestants(samples), STEPS).verdict == verdict


def test_a_busy_machine_never_misses_a_target():
    steady = contestants([50.0, 50.1, 50.2])
    assert judge(value("ours", at_least=100.0), steady, STEPS).verdict == MISSED
    assert judge(value("ours", at_least=100.0), steady, STEPS, busy=True).verdict == UNDECIDED
    assert judge(value("ours", at_least=40.0), steady, STEPS, busy=True).verdict == MET


def test_a_difference_is_ours_less_theirs():
    finding = judge(difference("ours", "theirs", at_most=0.5), contestants([0.9, 1.0, 1.1], [0.6, 0.7, 0.8]), SECONDS)
    assert finding.estimate.median == pytest.approx(0.3)
    assert finding.verdict == MET
    assert finding.says_target == "at most 500 ms"
    assert finding.statement == "ours minus theirs"


def test_without_a_peer_nothing_is_concluded():
    finding = judge(ratio("ours", "theirs", at_least=3.0), contestants([1.0, 2.0]), STEPS)
    assert finding.estimate is None
    assert finding.verdict == NOT_MEASURED


def test_noise_warning_states_its_rule():
    assert not Measured("steady", (100.0, 101.0, 99.0, 100.0)).noisy
    assert Measured("noisy", (100.0, 140.0, 70.0, 100.0, 130.0)).noisy
