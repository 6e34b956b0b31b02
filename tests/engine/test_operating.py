"""Signals, actuators, scenarios and controllers that do not fit their environment, and scenarios that do."""

import numpy as np
import pytest
from tank import tank

import velocirl
from velocirl import DefinitionError
from velocirl.engine.operating import action_seconds


class Controller:
    signals, actuators = ("level",), ("valve",)

    def __init__(self, **changes):
        vars(self).update(changes)

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return np.zeros(1, np.float32), state


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"signals": {"level": "m"}}, r"signals= has 1 names, and Box\(.*\) has 2 numbers"),
        ({"actuators": {"valve": "1", "pump": "W"}}, "actuators= has 2 names, and .* has 1 numbers"),
        ({"signals": ["level", "inflow"]}, "signals= must be a dict of units by name"),
        ({"scenarios": ["nominal"]}, "scenarios= must be a dict of params by name"),
        ({"scenarios": {"windy": {"niose": 1.0}}}, "scenario 'windy' sets 'niose': did you mean 'noise'?"),
        ({"scenarios": {"windy": {"noise": 7.0}}}, r"scenario 'windy': Params.noise must be from 0.0 to 1.0, got 7.0"),
        (
            {"scenarios": {"windy": {"noise": "uniform(0, 7)"}}},
            "scenario 'windy': Params.noise must be from 0.0 to 1.0",
        ),
        ({"scenarios": {"windy": 3}}, "scenario 'windy' must be a dict of params, got 3"),
        ({"controller": 3}, r"controller= must have predict\(observation\), as those of velocirl.controllers have"),
        (
            {"controller": Controller(signals=("levle",))},
            "its controller names 'levle', .* signals: did you mean 'level'",
        ),
        ({"controller": Controller(actuators=("pump",))}, "its controller names 'pump', .* actuators; there are valve"),
    ],
)
def test_what_does_not_fit_the_environment_is_refused(given, said):
    with pytest.raises(DefinitionError, match=f"Tank-v0: {said}"):
        tank(**given)


def ticking(name, **given):
    @velocirl.record
    class Params:
        time_step: velocirl.float32 = 0.05

    return tank(params=Params, constraints=(), scenarios={}, **given) if name == "params" else tank(**given)


def test_the_time_step_is_declared_in_seconds_or_by_the_parameter_of_that_name():
    assert tank().time_step is None
    assert tank(time_step=60).time_step == 60.0
    assert ticking("params").time_step == ticking("params", time_step=0.05).time_step == 0.05
    assert [action_seconds(tank(time_step=2.0, skip=3)), action_seconds(tank())] == [6.0, None]
    assert action_seconds(ticking("params"), {"time_step": 0.5}) == 0.5
    assert action_seconds(ticking("params", skip=2)) == 0.1
    assert action_seconds(ticking("params"), {"time_step": "uniform(0.1, 0.2)"}) is None


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("", 0.0, "time_step must be above 0 seconds, got 0.0"),
        ("", np.inf, "time_step must be above 0 seconds, got inf"),
        ("", "5 min", "time_step must be a number of seconds, got '5 min'"),
        ("params", 0.1, "time_step=0.1 contradicts Params.time_step=0.05: keep one of them"),
    ],
)
def test_a_time_step_that_is_none_is_refused(name, given, said):
    with pytest.raises(DefinitionError, match=f"Tank-v0: {said}"):
        ticking(name, time_step=given)


def test_a_rollout_has_the_declared_time_step():
    found = velocirl.rollout(
        lambda seen: np.zeros(1, np.float32),
        velocirl.make_vec(tank(time_step=30.0, skip=2), 1, device="python"),
        max_steps=3,
    )
    assert (found.time.tolist(), found.time_unit) == ([0.0, 60.0, 120.0, 180.0], "s")


def test_a_controller_that_fits_is_kept():
    controller = Controller()
    assert tank(controller=controller).controller is controller


def test_a_scenario_is_a_set_of_parameters_of_which_some_may_be_replaced():
    def params(**options):
        fleet = velocirl.make_vec(tank(), 2, seed=0, device="python", **options)
        fleet.reset()
        return fleet.get_state()["params"]

    assert params(scenario="nominal")["noise"].tolist() == [0.0, 0.0]
    assert params(scenario="disturbed")["noise"].tolist() == [0.5, 0.5]
    assert params(scenario="disturbed", params={"noise": 0.25})["noise"].tolist() == [0.25, 0.25]
    drawn = params(scenario="low")
    assert drawn["highest"].tolist() == [1.5, 1.5]
    assert drawn["noise"][0] != drawn["noise"][1]
    assert params(scenario="low")["noise"].tolist() == drawn["noise"].tolist()  # by the same seed
    one = velocirl.make(tank(), device="python", scenario="disturbed", highest=3.0)
    assert (one.get_wrapper_attr("noise"), one.get_wrapper_attr("highest")) == (0.5, 3.0)


def test_an_unknown_scenario_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="Tank-v0 has no scenario 'disturbd': did you mean 'disturbed'"):
        velocirl.make_vec(tank(), 2, scenario="disturbd")
    with pytest.raises(ValueError, match="CartPole-v1 has no scenario 'nominal'; it has none"):
        velocirl.make("CartPole-v1", scenario="nominal")
    with pytest.raises(
        ValueError, match="gym:CartPole-v1 has no scenario 'nominal': native environments may have some"
    ):
        velocirl.make_vec("gym:CartPole-v1", 2, scenario="nominal")


def test_a_parameter_outside_of_its_physical_range_is_named():
    with pytest.raises(ValueError, match=r"Tank-v0: Params.highest must be from 0.0 to 100.0, got -1.0"):
        velocirl.make_vec(tank(), 2, params={"highest": -1.0})
