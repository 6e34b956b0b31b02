"""What valves, pipes and sensors do, against hand computation and statistics."""

import numpy as np
import pytest

from velocirl.engine import random
from velocirl.environments.plants.instruments import delayed, drifted, lagged, noise, share_of


def test_noise_has_mean_0_and_deviation_1_and_is_bounded():
    stream = random.streams(0, 1)[0]
    drawn = np.array([noise(stream) for _ in range(20_000)])
    assert drawn.mean() == pytest.approx(0.0, abs=0.02)
    assert drawn.std() == pytest.approx(1.0, rel=0.02)
    assert np.abs(drawn).max() < 3.5
    assert np.mean(np.abs(drawn) < 1.0) == pytest.approx(0.683, abs=0.02)  # as of a normal distribution
    assert np.corrcoef(drawn[:-1], drawn[1:])[0, 1] == pytest.approx(0.0, abs=0.02)


def test_a_disturbance_has_the_mean_deviation_and_memory_that_it_is_given():
    stream, share = random.streams(1, 1)[0], share_of(5.0, 45.0)
    values = [10.0]
    for _ in range(40_000):
        values.append(drifted(values[-1], 10.0, 2.0, share, stream))
    values = np.array(values)
    assert values.mean() == pytest.approx(10.0, abs=0.15)
    assert values.std() == pytest.approx(2.0, rel=0.05)
    assert np.corrcoef(values[:-1], values[1:])[0, 1] == pytest.approx(1 - share, abs=0.01)
    assert np.abs(values - 10.0).max() <= 8.0
    assert drifted(10.0, 10.0, 0.0, share, stream) == 10.0


def test_a_lag_goes_its_share_and_arrives():
    assert lagged(1.0, 3.0, share_of(5.0, 5.0)) == 2.0
    assert lagged(1.0, 3.0, share_of(5.0, 0.0)) == 3.0
    value = np.float32(1.0)
    for _ in range(100):
        value = np.float32(lagged(value, np.float32(0.0), np.float32(0.5)))
    assert value == 0.0


@pytest.mark.parametrize("steps", [0.0, 1.0, 3.0, 4.0, 1.5, 3.25])
def test_a_line_gives_what_was_put_in_so_many_steps_ago(steps):
    given = np.arange(20.0) ** 2
    line = np.zeros(4)
    got = [delayed(line, value, steps) for value in given]
    whole, part = divmod(steps, 1.0)
    then = np.arange(5, 20) - int(whole)
    expected = (1 - part) * given[then] + part * given[then - 1]
    np.testing.assert_allclose(got[5:], expected)
