"""PID control against steps that were computed by hand."""

import numpy as np
import pytest
from heated_tank import make_tank

import velocirl
from velocirl import Box
from velocirl.controllers import PID, Loop
from velocirl.controllers.layout import Layout

PLANT = Layout(
    "Plant-v0", Box(-1000.0, 1000.0, (3,)), Box(-10.0, 10.0, (2,)), ("level", "flow", "target"), ("valve", "pump")
)


def bound(*loops, time_step=2.0, **more):
    pid = PID(*loops, time_step=time_step, **more)
    pid._layout = PLANT
    pid.settle(PLANT, None)
    return pid


def seen(level, flow=0.0, target=0.0):
    return np.array([level, flow, target], np.float32)


def test_two_steps_by_hand():
    pid = bound(
        Loop("level", "valve", 5.0, gain=0.5, integral_time=4.0, derivative_time=3.0, bias=1.0), bias={"pump": -2}
    )
    action, state = pid.predict(seen(3.0))
    # e = 2, integral = 4, no derivative yet: 1 + 0.5 * (2 + 4/4)
    np.testing.assert_allclose(action, [2.5, -2.0])
    action, state = pid.predict(seen(4.0), state)
    # e = 1, integral = 6, signal rises by 0.5 a second: 1 + 0.5 * (1 + 6/4 - 3 * 0.5)
    np.testing.assert_allclose(action, [1.5, -2.0])
    np.testing.assert_allclose(state, [[[6.0, 4.0]]])


def test_a_new_setpoint_gives_no_derivative_kick():
    pid = bound(Loop("level", "valve", "target", gain=1.0, derivative_time=100.0), bias={"pump": 0.0})
    _, state = pid.predict(seen(3.0, target=3.0))
    action, _ = pid.predict(seen(3.0, target=5.0), state)
    assert action[0] == 2.0


def test_the_derivative_sees_a_filtered_signal():
    pid = bound(Loop("level", "valve", 0.0, gain=-1.0, derivative_time=1.0, filter_time=6.0), bias={"pump": 0.0})
    _, state = pid.predict(seen(0.0))
    action, state = pid.predict(seen(4.0), state)
    # the filter follows by 2 / (2 + 6) of the difference: to 1, at 0.5 a second; -1 * (-4 - 0.5)
    np.testing.assert_allclose(action[0], 4.5)
    np.testing.assert_allclose(state[0, 0, 1], 1.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_windup_at_either_limit(sign):
    pid = bound(Loop("level", "valve", 100.0 * sign, gain=1.0, integral_time=1.0), bias={"pump": 0.0})
    state = None
    for _ in range(50):
        action, state = pid.predict(seen(0.0), state)
    assert action[0] == 10.0 * sign
    assert state[0, 0, 0] == 0.0  # without anti-windup 10,000
    action, state = pid.predict(seen(101.0 * sign), state)
    np.testing.assert_allclose(action[0], -1.0 * sign - 2.0 * sign)  # back within one step


def test_an_integral_leaves_a_limit_by_itself():
    pid = bound(Loop("level", "valve", 0.0, gain=1.0, integral_time=1.0, bias=20.0), bias={"pump": 0.0})
    action, state = pid.predict(seen(1.0))
    assert action[0] == 10.0
    assert state[0, 0, 0] == -2.0  # away from the limit it goes on


def test_limits_of_a_loop_are_those_of_the_action_at_most():
    pid = bound(Loop("level", "valve", 0.0, gain=1.0, low=-3.0, high=50.0), bias={"pump": 0.0})
    assert pid.predict(seen(40.0))[0][0] == -3.0
    assert pid.predict(seen(-40.0))[0][0] == 10.0


def test_a_batch_is_each_copy_by_itself_and_starts_anew_where_told():
    loops = Loop("level", "valve", 1.0, gain=0.3, integral_time=5.0), Loop("flow", "pump", "target", gain=-0.2)
    pid = bound(*loops)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(6, 4, 3)).astype(np.float32)
    starts = rng.random((6, 4)) < 0.3
    together, singles = None, [None] * 4
    for row, begins in zip(observations, starts, strict=True):
        actions, together = pid.predict(row, together, episode_start=begins)
        for copy in range(4):
            state = None if begins[copy] else singles[copy]
            action, singles[copy] = pid.predict(row[copy], state)
            np.testing.assert_array_equal(actions[copy], action)
    assert actions.dtype == np.float32


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: bound(Loop("levle", "valve", 1.0, gain=1.0)), "no signal 'levle': did you mean 'level'"),
        (lambda: bound(Loop("level", "pum", 1.0, gain=1.0)), "no actuator 'pum': did you mean 'pump'"),
        (lambda: bound(Loop("level", 2, 1.0, gain=1.0)), "no actuator number 2: they are 0 to 1"),
        (lambda: bound(Loop("level", "valve", 1.0, gain=1.0)), "says nothing of the actuator 'pump'"),
        (lambda: bound(Loop(0, 0, 1.0, gain=1.0), Loop(1, 0, 1.0, gain=1.0), bias={1: 0}), "move the same actuator"),
        (lambda: bound(Loop(0, 0, 1.0, gain=1.0), bias={"pump": 11}), "pump is to be 11.0, outside -10.0 to 10.0"),
        (lambda: Loop("level", "valve", 1.0, gain=float("nan")), "gain must be a finite number"),
        (lambda: Loop("level", "valve", 1.0, gain=1.0, integral_time=0.0), "integral_time must be above 0"),
        (lambda: Loop("level", "valve", 1.0, gain=1.0, low=2.0, high=1.0), "low must be below high"),
        (lambda: PID(time_step=1.0), "needs a loop"),
        (lambda: PID(Loop("level", "valve", 1.0, gain=1.0), time_step=0.0), "time_step must be above 0"),
        (lambda: PID(Loop(0, 0, 1.0, gain=1.0), time_step=1.0).predict(seen(0.0)), "does not know its environment"),
        (lambda: bound(Loop(0, 0, 1.0, gain=1.0), bias={1: 0}).predict(seen(np.nan)), "signal 0 of copy 0 is NaN"),
        (lambda: bound(Loop(0, 0, 1.0, gain=1.0), bias={1: 0}).predict(np.zeros(2)), r"has shape \(3,\), got \(2,\)"),
    ],
)
def test_what_is_wrong_is_said(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_an_outer_loop_sets_the_inner_one_within_the_range_of_its_signal():
    pid = bound(
        Loop(
            "flow", "valve", Loop("level", None, "target", gain=3.0, bias=1.0, high=20.0), gain=0.5, integral_time=4.0
        ),
        bias={"pump": 0.0},
    )
    action, state = pid.predict(seen(level=4.0, flow=2.0, target=6.0))
    # outer: 1 + 3 * 2 = 7; inner: e = 5, integral 10: 0.5 * (5 + 10 / 4)
    np.testing.assert_allclose(action[0], 3.75)
    np.testing.assert_allclose(state[0, :, 0], [4.0, 10.0])
    action, _ = pid.predict(seen(level=0.0, flow=19.0, target=900.0))
    np.testing.assert_allclose(action[0], 0.5 * (1.0 + 2.0 / 4.0))  # from an outer loop at its limit of 20


def test_feed_forward_adds_a_share_of_a_signal():
    pid = bound(Loop("level", "valve", 5.0, gain=0.5, bias=1.0, feed_forward={"flow": -0.25}), bias={"pump": 0.0})
    np.testing.assert_allclose(pid.predict(seen(3.0, flow=8.0))[0][0], 1.0 + 0.5 * 2.0 - 0.25 * 8.0)


def test_a_schedule_multiplies_the_gain_by_an_interpolated_factor():
    loop = Loop("level", "valve", 5.0, gain=0.5, schedule=("target", [(0.0, 1.0), (10.0, 3.0)]))
    pid = bound(loop, bias={"pump": 0.0})
    actions, _ = pid.predict(np.stack([seen(3.0, target=target) for target in (-5.0, 5.0, 99.0)]))
    np.testing.assert_allclose(actions[:, 0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("loop", "says"),
    [
        (
            lambda: Loop("level", "valve", Loop("flow", "pump", 1.0, gain=1.0), gain=1.0),
            "of its outer loop: make it None",
        ),
        (
            lambda: Loop("level", "valve", 1.0, gain=1.0, feed_forward={"flow": np.inf}),
            "feed_forward of 'flow' must be",
        ),
        (lambda: Loop("level", "valve", 1.0, gain=1.0, schedule=("flow", [(1, 1), (1, 2)])), "ascending values"),
        (lambda: PID(Loop("level", None, 1.0, gain=1.0), time_step=1.0), "only the outer loop of a cascade"),
    ],
)
def test_what_is_wrong_with_a_cascade_is_said(loop, says):
    with pytest.raises(ValueError, match=says):
        loop()


def test_a_time_step_other_than_the_plants_is_refused():
    pid = PID(Loop("level", "inflow", 1.0, gain=0.1), time_step=5.0, bias={"heater": 0.0})
    with pytest.raises(
        ValueError, match=r"time_step=5 of this PID is not the 2 s between two actions of Tank-v0: give"
    ):
        pid.bind(make_tank(controller=None))
    tank = make_tank(controller=None, skip=3)  # an action each six seconds
    assert PID(*pid.loops, time_step=6.0, bias=pid.bias).bind(tank).layout.time_step == 6.0
    slow = velocirl.make_vec(make_tank(controller=None), 2, params={"time_step": 5.0}, device="python")
    assert pid.bind(slow).layout.time_step == 5.0
