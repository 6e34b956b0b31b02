"""Automatic tuning against what is known of a lag with dead time."""

import numpy as np
import pytest
from lag import DELAY, GAIN, LAG, plant

import velocirl
from velocirl.controllers import PID, Loop

# Skogestad's SIMC rules with the closed loop as fast as the dead time allows.
SIMC = PID(Loop("output", "command", 1.0, gain=LAG / (GAIN * 2 * DELAY), integral_time=LAG), time_step=1.0)


@pytest.mark.parametrize(("gain", "integral_time", "objective"), [(0.05, 200.0, "return"), (6.0, 4.0, "error")])
def test_a_bad_controller_becomes_a_good_one(gain, integral_time, objective):
    bad = PID(Loop("output", "command", 1.0, gain=gain, integral_time=integral_time), time_step=1.0)
    good = bad.tune(plant, objective=objective, episodes=1, seed=1)
    reached = velocirl.evaluate(good, plant, episodes=1).mean_return
    assert reached >= velocirl.evaluate(SIMC, plant, episodes=1).mean_return
    assert good.loops[0].gain == pytest.approx(SIMC.loops[0].gain, rel=0.3)
    assert good.loops[0].integral_time == pytest.approx(LAG, rel=0.3)
    assert good.loops[0].derivative_time == 0.0  # a PI controller stays one
    assert repr(bad.tune(plant, objective=objective, episodes=1, seed=1)) == repr(good)


def test_a_derivative_makes_it_better():
    reached = velocirl.evaluate(SIMC, plant, episodes=1).mean_return
    full = PID(Loop("output", "command", 1.0, gain=0.5, integral_time=30.0, derivative_time=1.0), time_step=1.0)
    good = full.tune(plant, episodes=1)
    assert velocirl.evaluate(good, plant, episodes=1).mean_return > reached + 1.0
    assert np.isfinite(good.loops[0].derivative_time)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"objective": "speed"}, "objective must be one of return, error"),
        ({"params": {"gian": 1.0}}, "no field 'gian'"),
    ],
)
def test_what_is_wrong_is_said(options, says):
    with pytest.raises(ValueError, match=says):
        SIMC.tune(plant, **options)
