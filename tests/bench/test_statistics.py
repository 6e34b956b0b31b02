import numpy as np
import pytest

from velocirl.bench.statistics import CONFIDENCE, estimate, spread
from velocirl.bench.units import BYTES, SECONDS, STEPS, TIMES


@pytest.mark.parametrize("draw", ["normal", "lognormal"])
def test_interval_holds_the_true_median_at_about_the_stated_rate(draw):
    generator = np.random.default_rng(1)
    truth = 0.0 if draw == "normal" else 1.0
    trials = [estimate(getattr(generator, draw)(size=15)) for _ in range(300)]
    covered = np.mean([found.low <= truth <= found.high for found in trials])
    assert abs(covered - CONFIDENCE) < 0.035


def test_interval_shrinks_with_more_samples():
    samples = np.random.default_rng(2).normal(100.0, 5.0, 400)
    few, many = estimate(samples[:16]), estimate(samples)
    assert many.high - many.low < 0.5 * (few.high - few.low)


def test_estimate_of_known_samples():
    found = estimate([4.0, 1.0, 3.0, 2.0, 100.0])
    assert found.median == 3.0
    assert found.low == 1.0
    assert found.high == 100.0
    assert estimate([4.0, 1.0, 3.0, 2.0, 100.0]) == found
    assert estimate([7.0]).low == estimate([7.0]).high == 7.0


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [float("inf")]])
def test_estimate_refuses_what_is_no_sample(samples):
    with pytest.raises(ValueError, match="finite samples"):
        estimate(samples)


def test_spread_is_the_interquartile_range_over_the_median():
    assert spread([8.0, 9.0, 10.0, 11.0, 12.0]) == pytest.approx(0.2)
    assert spread([5.0, 5.0, 5.0]) == 0.0


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (STEPS, 35_620_000.0, "35.6M steps/s"),
        (STEPS, 999_960.0, "1.00M steps/s"),
        (STEPS, 312.0, "312 steps/s"),
        (SECONDS, 0.000115, "115 µs"),
        (SECONDS, 3.2, "3.20 s"),
        (SECONDS, 0.0, "0 s"),
        (BYTES, 138.0, "138 bytes"),
        (BYTES, 4096.0, "4,096 bytes"),
        (TIMES, 3.456, "3.46x"),
        (TIMES, -0.5, "-0.50x"),
    ],
)
def test_units_as_people_read_them(unit, value, text):
    assert unit.say(value) == text
