"""Recorded constraints, alarms and panels against trajectories worked out by hand."""

import numpy as np
import pytest
from heated_tank import heat_fully, make_tank, open_fully

import velocirl
from velocirl.trajectories.alarms import Alarm, alarms_of, stretches
from velocirl.trajectories.panels import by_episode, panels_of


@pytest.fixture(scope="module")
def tank():
    return make_tank()


def record(tank, policy, **options):
    return velocirl.rollout(policy, tank, device="python", **options)


def test_names_and_units_are_the_environments_own(tank):
    found = record(tank, tank.controller, max_steps=3)
    assert {name: one.unit for name, one in found.signals.items()} == tank.signals
    assert {name: one.unit for name, one in found.actuators.items()} == tank.actuators
    assert {name: (one.unit, one.critical, one.signal) for name, one in found.constraints.items()} == {
        "level": ("m", False, "level"),
        "overheating": ("K", True, None),
    }
    assert (found.time_unit, found.policy) == ("s", "PID")


def test_constraints_are_those_of_the_state_after_the_step(tank):
    found = record(tank, heat_fully, episodes=2)
    for trace, signal in (("level", "level"), ("overheating", "temperature")):
        assert np.array_equal(found.constraints[trace].values, found.signals[signal].values)
    for one in found.each():  # it ends with the first moment that is too hot, which is recorded
        hot = one.constraints["overheating"]
        assert one.terminated[-1]
        assert hot.cost.tolist() == [0.0] * (len(one) - 1) + [1.0]
        assert hot.values[-1] > 330.0 >= hot.values[-2]
    level = found.constraints["level"]
    assert np.array_equal(level.cost, (level.values < np.float32(0.4)) & (found.time > 0.0))
    assert np.array_equal(found.cost, level.cost + found.constraints["overheating"].cost)
    assert np.all(np.isneginf(found.constraints["overheating"].low))


def test_limits_are_those_of_the_scenario_and_parameters_count_for_more(tank):
    def limit(**options):
        return float(record(tank, open_fully, max_steps=1, **options).constraints["level"].high[0])

    assert limit() == pytest.approx(1.6)
    assert limit(scenario="narrow") == pytest.approx(1.05)
    assert limit(scenario="narrow", params={"max_level": 1.2}) == pytest.approx(1.2)
    assert record(tank, open_fully, max_steps=1, scenario="narrow").scenario == "narrow"
    with pytest.raises(ValueError, match="Tank-v0 has no scenario 'narow': did you mean 'narrow'"):
        limit(scenario="narow")
    with pytest.raises(ValueError, match="gym:CartPole-v1 has no scenario 'narrow'"):
        velocirl.rollout(open_fully, "gym:CartPole-v1", scenario="narrow")


def test_alarms_last_as_long_as_the_steps_that_violate(tank):
    found = record(tank, open_fully)
    (alarm,) = alarms_of(found)
    high = np.flatnonzero(found.constraints["level"].values > np.float32(1.6))
    assert alarm == Alarm(
        episode=0,
        time=2.0 * high[0],
        constraint="level",
        value=float(found.signals["level"].values[-1]),
        limit=pytest.approx(1.6),
        duration=2.0 * len(high),
        unit="m",
        critical=False,
    )
    low, hot = alarms_of(record(tank, heat_fully))
    assert (low.constraint, hot.constraint, hot.critical, hot.duration) == ("level", "overheating", True, 2.0)
    assert low.limit == pytest.approx(0.4)
    assert low.value < 0.4


def test_stretches():
    assert stretches(np.array([0, 1, 1, 0, 1])) == [(1, 3), (4, 5)]
    assert stretches(np.array([1, 0])) == [(0, 1)]
    assert stretches(np.array([0, 0])) == []


def test_panels_have_limits_where_a_constraint_is_about_them(tank):
    found = record(tank, open_fully, episodes=2)
    panels = {(one.kind, one.name): one for one in panels_of(by_episode(found))}
    assert list(panels) == [
        ("constraint", "overheating"), ("signal", "level"), ("signal", "temperature"), ("signal", "setpoint"),
        ("actuator", "inflow"), ("actuator", "heater"), ("reward", "reward"),
    ]  # fmt: skip
    level = panels["signal", "level"]
    assert [(one.name, one.values[0]) for one in level.limits] == [
        ("low limit of level", pytest.approx(0.4)),
        ("high limit of level", pytest.approx(1.6)),
    ]
    begins = [float(one.time[np.argmax(one.constraints["level"].cost > 0) - 1]) for one in found.each()]
    assert level.violated == ((min(begins), 120.0),)  # overlapping times are one
    assert [one.name for one in panels["constraint", "overheating"].limits] == ["high limit of overheating"]
    inflow = panels["actuator", "inflow"].lines[0]
    assert (len(inflow.time), inflow.time[0]) == (61, 0.0)  # the first action holds from the beginning
    assert panels["reward", "reward"].lines[0].time[0] == 2.0


@pytest.mark.parametrize("ending", [".png", ".html"])
def test_pictures_and_pages_are_written(tank, tmp_path, ending):
    found = record(tank, open_fully, episodes=2)
    content = found.save(tmp_path / f"tank{ending}").read_bytes()
    if ending == ".png":
        assert content.startswith(b"\x89PNG")
    else:
        page = content.decode()
        assert page.count('class="limit"') == 3 + 1  # two of the level, one of overheating, and the legend's
        assert page.count("<h4>") == 7
        assert "beyond its limit" in page
        assert "http" not in page.replace("http-equiv", "")


def test_costs_of_gymnasiums_environments_are_in_infos():
    import gymnasium

    class Costly(gymnasium.Env):
        observation_space = velocirl.Box(0.0, 10.0, (1,))
        action_space = velocirl.Discrete(2)
        steps = 0

        def reset(self, *, seed=None, options=None):
            self.steps = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.steps += 1
            return np.full(1, self.steps, np.float32), 1.0, self.steps == 3, False, {"cost": 0.5 * self.steps}

    vector = gymnasium.vector.SyncVectorEnv([Costly, Costly], autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
    found = velocirl.rollout(lambda _: 0, vector, episodes=2)
    assert found.cost.tolist() == [0.0, 0.5, 1.0, 1.5] * 2
    assert found.signals["observation[0]"].values.tolist() == [0.0, 1.0, 2.0, 3.0] * 2
