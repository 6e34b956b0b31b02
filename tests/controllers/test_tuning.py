"""Automatic tuning against what is known of a lag with dead time."""

import warnings

import numpy as np
import pytest
from lag import DELAY, GAIN, LAG, plant

import velocirl
from velocirl import Box, Constraint, Environment, float32, random, record
from velocirl.controllers import PID, Loop


@record
class Tank:
    level: float32
    surge: float32


def fill(state, params, rng):
    state.level = 1.0
    state.surge = 0.04 if random.uniform(rng) < 0.125 else 0.0


def flow(state, params, action, rng):
    state.level += state.surge - action[0]
    return -0.1 * abs(action[0]), False


def gauge(state, params, observation):
    observation[0] = state.level


surging = Environment(
    "Surging-v0", state=Tank, observation=Box(-9.0, 9.0, (1,)), action=Box(-0.2, 0.2, (1,)), max_steps=40, reset=fill,
    step=flow, observe=gauge, signals={"level": "m"}, actuators={"valve": "m3/s"}, time_step=1.0,
    constraints=(Constraint("level", "level", high=1.5, unit="m", critical=True),),
)  # fmt: skip

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


def test_a_winner_is_chosen_and_counted_on_fresh_starts():
    """A tank that surges in one start of eight: with few starts there is none, and the winner lets it run over."""
    loose = PID(Loop("level", "valve", 1.0, gain=-0.02), time_step=1.0)
    few = {"candidates": 12, "rounds": 3, "device": "python", "seed": 4}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = loose.tune(surging, episodes=16, validation=64, **few)
    counted = found.validation
    assert counted.episodes == 64
    assert counted.violating == counted.stopped == len(said) == 0
    with pytest.warns(
        UserWarning, match=r"in \d+ of 64 fresh episodes the tuned PID violates a constraint, and \d+ ended"
    ):
        lost = loose.tune(surging, episodes=1, validation=64, spread=1e-9, **few).validation
    assert 0 < lost.stopped < 20


def test_loops_of_a_cascade_are_tuned_together():
    bad = PID(
        Loop("output", "command", Loop("output", None, 1.0, gain=0.3, high=2.0), gain=0.2, integral_time=100.0),
        time_step=1.0,
    )
    good = bad.tune(plant, candidates=8, rounds=2, episodes=1, validation=1, device="python")
    assert good.loops[0].gain != 0.2
    assert good.loops[0].setpoint.gain != 0.3
    assert good.loops[0].setpoint.high == 2.0
