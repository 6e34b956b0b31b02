"""Control performance: set points, errors, travel and distances, against numbers that were computed by hand."""

import numpy as np
import pytest
from heated_tank import make_tank

import velocirl
from velocirl.controllers import PID, Loop
from velocirl.trajectories.control import control_figures, set_points_of
from velocirl.trajectories.panels import by_episode, panels_of
from velocirl.trajectories.trajectory import ConstraintTrace, Quantity, Trajectory, readable_time


def recorded(level, target, valve=None, time_step=2.0):
    rows = len(level)
    no = np.full(rows, -np.inf)
    return Trajectory(
        environment="Tank-v0", time=time_step * np.arange(rows), episode=np.zeros(rows, int), reward=np.zeros(rows),
        terminated=np.zeros(rows, bool), truncated=np.zeros(rows, bool),
        signals={"level": Quantity(np.array(level), "m")},
        actuators={} if valve is None else {"valve": Quantity(np.array(valve), "1")},
        constraints={"level": ConstraintTrace(np.array(level), no, np.full(rows, 3.0), np.zeros(rows), "m")},
        set_points={"level": Quantity(np.array(target), "m")},
        time_unit="s",
    )  # fmt: skip


def test_errors_overshoot_settling_travel_and_distance_by_hand():
    level = [1.0, 1.6, 2.3, 2.1, 1.96, 2.0, 2.0]
    found = control_figures(recorded(level, [2.0] * 7, [np.nan, 0.5, 0.9, 0.2, 0.4, 0.4, 0.4]))
    assert found["iae/level"] == pytest.approx(2.0 * (0.4 + 0.3 + 0.1 + 0.04))
    assert found["overshoot/level"] == pytest.approx(0.3)
    assert found["settling_time/level"] == pytest.approx(8.0)  # within 0.05 from the fifth row on
    assert found["travel/valve"] == pytest.approx(0.4 + 0.7 + 0.2)
    assert found["closest_approach/level"] == pytest.approx(0.7)


def test_a_set_point_that_moves_begins_anew_and_what_never_settles_is_infinite():
    found = control_figures(recorded([1.0, 1.0, 1.0, 1.6, 2.0, 2.2, 2.0], [1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]))
    assert found["overshoot/level"] == pytest.approx(0.2)
    assert found["settling_time/level"] == pytest.approx(8.0)
    assert np.isinf(control_figures(recorded([1.0, 1.2, 1.4], [2.0] * 3))["settling_time/level"][0])


def test_set_points_are_those_of_the_environments_controller():
    tank = make_tank()
    level, held = Quantity(np.array([0.5, 0.8]), "m"), Quantity(np.array([1.0, 1.2]), "m")
    signals = {"level": level, "temperature": Quantity(np.array([320.0, 321.0]), "K"), "setpoint": held}
    found = set_points_of(tank, signals)
    assert list(found) == ["level"]
    np.testing.assert_array_equal(found["level"].values, held.values)
    cascade = PID(
        Loop("level", "inflow", Loop("temperature", None, 325.0, gain=1.0), gain=0.1), time_step=2.0, bias={"heater": 0}
    )
    found = set_points_of(make_tank(controller=cascade), signals)
    assert {name: one.values.tolist() for name, one in found.items()} == {"temperature": [325.0, 325.0]}
    assert set_points_of(None, signals) == {}


def test_a_chart_has_measurement_and_set_point_and_readable_time():
    trajectory = velocirl.rollout(make_tank().controller, make_tank(), 2, seed=0, device="python")
    panels = {one.name: one for one in panels_of(by_episode(trajectory)) if one.kind == "signal"}
    assert [one.name for one in panels["level"].set_points] == ["set point of level"]
    assert not panels["temperature"].set_points
    assert panels["level"].time_unit == "s"
    assert [readable_time(length, "s") for length in (599.0, 1800.0, 86400.0, 1e7)] == [
        ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0),
    ]  # fmt: skip
    assert readable_time(1e7, "steps") == ("steps", 1.0)


def test_a_safety_report_says_how_set_points_are_held_and_no_unit_is_1():
    tank = make_tank()
    found = velocirl.evaluate_safety(tank.controller, tank, ["nominal"], 1, 2, device="python")
    text = str(found)
    assert "set point" in text
    assert "closest approach" in text
    figures = found.scenarios["nominal"][found.policy].figures
    own = velocirl.rollout(tank.controller, tank, 2, seed=0, scenario="nominal", device="python")
    by_hand = control_figures(own)
    assert figures["iae/level"].value == pytest.approx(by_hand["iae/level"].mean())
    assert figures["closest_approach/level"].value == pytest.approx(by_hand["closest_approach/level"].min())
    plain = make_tank(
        signals={"level": "1", "temperature": "K", "setpoint": "1"}, constraints=make_tank().constraints[1:]
    )
    assert " 1 1" not in str(velocirl.evaluate_safety(plain.controller, plain, ["nominal"], 1, 1, device="python"))
