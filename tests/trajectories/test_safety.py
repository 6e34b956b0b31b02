"""Figures of safety against a trajectory made by hand, and evaluations put together from rollouts."""

import json
import os
import re

import numpy as np
import pytest
from heated_tank import FEED_TEMPERATURE, HEATER, INFLOW, heat_fully, make_tank, open_fully

import velocirl
from velocirl.runs.curves.comparing import bootstrap
from velocirl.training.episode_costs import told_cost
from velocirl.training.evaluation import Rule
from velocirl.training.source import Source
from velocirl.trajectories.figures import estimate, estimates, figures_of, normalised, spent, worst
from velocirl.trajectories.responses import step_responses
from velocirl.trajectories.safety import SafetyEvaluation, _judge, evaluate_safety, worst_episode
from velocirl.trajectories.telling import say_estimate
from velocirl.trajectories.trajectory import ConstraintTrace, Trajectory


def by_hand():
    """Two episodes of 3 and 2 steps of 2 s: the second is stopped by the critical constraint."""

    def column(*values):
        return np.array(values, np.float64)

    level = ConstraintTrace(
        values=column(1.0, 1.5, 2.5, 3.0, 1.0, 1.0, 1.0),
        low=column(*[0.5] * 7),
        high=column(*[2.0] * 7),
        cost=column(0, 0, 1, 1, 0, 0, 0),
        unit="m",
    )
    heat = ConstraintTrace(
        values=column(300, 300, 300, 300, 300, 340, 360),
        low=column(*[-np.inf] * 7),
        high=column(*[350] * 7),
        cost=column(0, 0, 0, 0, 0, 0, 1),
        unit="K",
        critical=True,
    )
    return Trajectory(
        environment="Tank-v0",
        time=column(0, 2, 4, 6, 0, 2, 4),
        episode=np.array([0, 0, 0, 0, 1, 1, 1]),
        reward=column(0, 1, 1, 1, 0, 5, -10),
        terminated=np.array([False] * 6 + [True]),
        truncated=np.array([False] * 3 + [True] + [False] * 3),
        signals={},
        actuators={},
        constraints={"level": level, "heat": heat},
        cost=level.cost + heat.cost,
        time_unit="s",
    )


def test_figures_of_a_trajectory_made_by_hand():
    found = {name: values.tolist() for name, values in figures_of(by_hand()).items()}
    assert found == {
        "return": [3.0, -5.0],
        "length": [3.0, 2.0],
        "cost": [2.0, 1.0],
        "violation_rate": [1.0, 1.0],
        "time_in_violation": [4.0, 2.0],
        "emergency_stops": [0.0, 1.0],
        "cost/level": [2.0, 0.0],
        "violation_rate/level": [1.0, 0.0],
        "time_in_violation/level": [4.0, 0.0],
        "worst_excursion/level": [1.0, 0.0],
        "cost/heat": [0.0, 1.0],
        "violation_rate/heat": [0.0, 1.0],
        "time_in_violation/heat": [0.0, 2.0],
        "worst_excursion/heat": [0.0, 10.0],
        "closest_approach/level": [-1.0, 0.5],
        "closest_approach/heat": [50.0, -10.0],
    }
    assert {name: values.tolist() for name, values in figures_of(by_hand().one(1)).items()} == {
        name: values[1:] for name, values in found.items()
    }


def test_what_nobody_violated_costs_nothing():
    quiet = by_hand().one(0).at(np.array([True, True, False, False]))
    figures = figures_of(quiet)
    assert {name: values.tolist() for name, values in figures.items() if values.any()} == {
        "return": [1.0],
        "length": [1.0],
        "closest_approach/level": [0.5],
        "closest_approach/heat": [50.0],
    }


def test_returns_are_interquartile_means_within_their_interval():
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    found = estimate(values)
    low, high = bootstrap(np.array(values)[:, None])
    assert (found.value, found.low, found.high) == (3.0, low[0], high[0])
    assert found.low < 3.0 < found.high
    assert (worst(values).value, worst(values).certain, estimate([2.0]).certain) == (100.0, True, True)


def stopping(stops, episodes):
    """Figures of episodes, the first of which are stopped after 5 costs."""
    stopped = np.arange(episodes) < stops
    zeros = np.zeros(episodes)
    figures = {"return": zeros, "length": zeros + 10.0, "cost": 5.0 * stopped, "violation_rate": 1.0 * stopped}
    return {**figures, "emergency_stops": 1.0 * stopped, "worst_excursion/level": 7.0 * stopped}


def test_a_single_violation_in_500_episodes_is_never_0_however_seeds_fall():
    """Means over seeds that leave the best and the worst quarter out read 0 in each of these."""
    drawn, together = np.random.default_rng(0), stopping(1, 500)
    for _ in range(100):
        order, count = drawn.permutation(500), int(drawn.integers(2, 26))
        ends = np.sort(drawn.choice(np.arange(1, 500), count - 1, replace=False))
        seeds = [{name: part[some] for name, part in together.items()} for some in np.split(order, ends)]
        found = estimates(seeds)
        for name in ("violation_rate", "emergency_stops"):
            assert (found[name].count, found[name].episodes, found[name].value) == (1, 500, 1 / 500)
            assert 0.0 < found[name].low < 1 / 500 < found[name].high < 0.012
            assert say_estimate(found[name], name) == "1 of 500, 0.20% (0.0050% to 1.2%)"
        assert (found["cost"].value, found["cost"].most, found["worst_excursion/level"].value) == (0.01, 5.0, 7.0)
        assert say_estimate(found["cost"], "cost") == "0.010, most 5.000"
        assert worst_episode(seeds)[1] == int(np.flatnonzero(seeds[worst_episode(seeds)[0]]["cost"])[0])


def test_nothing_in_50_episodes_has_an_upper_end():
    found = estimates([stopping(0, 10)] * 5)["emergency_stops"]
    assert say_estimate(found, "emergency_stops") == "0 of 50, 0% (0% to 7.2%)"
    assert say_estimate(estimates([stopping(0, 10)] * 5)["cost"], "cost") == "0"


def test_an_emergency_stop_is_worse_than_a_high_cost():
    one, other = stopping(0, 3), stopping(0, 3)
    one["cost"][1] = 29.0
    assert worst_episode([other, one]) == (1, 1)
    other["cost"][2] = other["emergency_stops"][2] = 1.0
    assert worst_episode([other, one]) == (0, 2)


def test_a_cost_that_is_no_number_is_never_taken_for_none():
    envs = {"cost": np.array([np.nan, 0.0, 2.0]), "_cost": np.array([True, False, True])}
    assert told_cost(envs, np.zeros(3, np.bool_)).tolist()[::2] == [np.inf, 2.0]
    found = spent([np.array([np.nan, 0.0])])
    assert (found.value, found.high, found.count) == (np.inf, np.inf, 1)


def test_scores_are_0_for_random_actions_and_100_for_the_controller():
    assert normalised([10.0, 20.0, 30.0], random=10.0, controller=20.0).values == (0.0, 100.0, 200.0)
    assert normalised([10.0], random=20.0, controller=20.0) is None


@pytest.fixture(scope="module")
def tank():
    return make_tank(max_steps=30)


@pytest.fixture(scope="module")
def evaluation(tank):
    options = {"episodes": 2, "seeds": 3, "responses": True, "device": "python"}
    return evaluate_safety(open_fully, tank, ["nominal", "narrow"], compare={"hot": heat_fully}, **options)


def test_an_evaluation_is_of_rollouts_with_each_seed(tank, evaluation):
    assert list(evaluation.scenarios) == ["nominal", "narrow"]
    assert evaluation.seeds == (0, 1, 2)
    for scenario, judged in evaluation.scenarios.items():
        assert list(judged) == ["open_fully", "controller", "hot", "random"]
        for name, policy in (("open_fully", open_fully), ("controller", tank.controller), ("hot", heat_fully)):
            rolled = [velocirl.rollout(policy, tank, 2, seed, scenario=scenario, device="python") for seed in range(3)]
            for figure, found in estimates([figures_of(one) for one in rolled]).items():
                assert judged[name].figures[figure] == found
            returns = [one.returns.mean() for one in rolled]
            assert judged[name].figures["return"].values == pytest.approx(returns)
    nominal = evaluation.scenarios["nominal"]
    assert nominal["hot"].figures["emergency_stops"].value == 1.0
    assert nominal["controller"].figures["score"].value == pytest.approx(100.0)
    assert nominal["random"].figures["score"].value == pytest.approx(0.0)
    gap = nominal["open_fully"].figures["gap/controller"]
    mine, others = (nominal[name].figures["return"].values for name in ("open_fully", "controller"))
    assert gap.values == pytest.approx(np.subtract(mine, others))
    assert "gap/controller" not in nominal["controller"].figures


def test_an_evaluation_is_told_as_text_json_and_page(evaluation, tmp_path):
    words = str(evaluation)
    assert words.startswith("Tank-v0: open_fully, 3 seeds of 2 episodes\n")
    assert "Violations and stops: counts over all 6 episodes; interval: exact binomial (Clopper-Pearson)." in words
    assert re.search(r"^emergency stops +0 of 6, 0% \(0% to 46.0%\) .*6 of 6, 100% \(54.0% to 100%\)", words, re.M)
    assert "0.4 to 1.05 m" in words
    assert "at most 330 K, critical" in words
    read = json.loads(evaluation.save(tmp_path / "report.json").read_text())
    stops = read["scenarios"]["nominal"]["hot"]["emergency_stops"]
    assert stops.pop("low") == pytest.approx(0.025 ** (1 / 6))
    how = "exact binomial (Clopper-Pearson)"
    assert stops == {"value": 1.0, "high": 1.0, "count": 6, "episodes": 6, "interval": how, "seeds": [1.0] * 3}
    assert read["units"] == {"level": "m", "overheating": "K"}
    page = evaluation.save(tmp_path / "report.html").read_text()
    for words in ("Trajectories against limits", "Step responses", "setpoint from 1 to 1.1 m", "Alarms", "stroke"):
        assert words in page
    assert page.count('<td data-heading="policy">open_fully</td>') == 2 * 2 + 2  # constraints, set points; 2 scenarios
    assert page.count("at most 330 K") == 2 * 3  # beside each policy but random actions
    with pytest.raises(ValueError, match=r"report.pdf must end in \.json or \.html"):
        evaluation.save("report.pdf")


def test_the_worst_episode_of_all_seeds_is_drawn_and_its_alarms_are_listed(tank, tmp_path):
    """The second seed has the only violation, in its second episode."""
    first, second = (velocirl.rollout(tank.controller, tank, 3, seed, device="python") for seed in (0, 1))
    assert not first.cost.any()
    assert not second.cost.any()
    trace, row = second.constraints["overheating"], int(second.first[2]) - 1
    trace.cost[row] = second.cost[row] = 1.0
    trace.values[row], second.terminated[row] = 335.0, True
    judged = _judge({"mine": [first, second], "random": [first, second]})
    mine = judged["mine"]
    assert (mine.trajectory.seed, mine.worst) == (1, 1)
    assert [(seed, one.episode, one.constraint, one.value) for seed, one in mine.alarms] == [(1, 1, "overheating", 335)]
    found = SafetyEvaluation("Tank-v0", "mine", (0, 1), 3, "s", {"overheating": "K"}, {"nominal": judged})
    page = found.save(tmp_path / "report.html").read_text()
    assert "Seed 1, episode 2." in page
    assert "nominal, seed 1" in page
    assert "1 of 6" in page
    stops = re.search(r"<span>emergency stops</span><strong>(.*?)</strong><small>(.*?)</small>", page)
    assert stops.groups() == ("1 of 6, 16.7%", "worst of scenarios: nominal; 0.42% to 64.2%")
    assert page.count("tile bad") == 3


def test_the_page_of_a_trajectory_says_which_episodes_were_stopped(tank, tmp_path):
    page = velocirl.rollout(heat_fully, tank, 2, device="python").save(tmp_path / "hot.html").read_text()
    assert page.count('<span class="pill bad">emergency stop</span>') == 2
    calm = velocirl.rollout(tank.controller, tank, 2, device="python").save(tmp_path / "calm.html").read_text()
    assert ("emergency stop" in calm, calm.count("cut off")) == (False, 2)


def test_a_report_is_never_half_written(evaluation, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluation.save(path)
    assert (path.read_text(), len(list(tmp_path.iterdir()))) == ("before", 1)


def test_without_a_setpoint_each_actuator_is_stepped_around_where_it_is_held():
    @velocirl.record
    class Params:
        time_step: velocirl.float32 = 2.0
        aim: velocirl.float32 = 1.0
        max_level: velocirl.float32 = 1.6

    def move(state, params, action, rng):
        state.level += params.time_step * (action[0] - 0.05 * state.level)
        state.temperature += params.time_step * (action[1] / 4.2e6 - 0.05 * (state.temperature - FEED_TEMPERATURE))
        return 0.0, False

    def observe(state, params, observation):
        observation[0], observation[1], observation[2] = state.level, state.temperature, params.aim

    def steady(_):
        return np.array([0.05, 3e5], np.float32)

    plant = make_tank("Steady-v0", params=Params, step=move, observe=observe, max_steps=40, scenarios={})
    inflow, heater = step_responses({"steady": Rule(steady)}, Source(plant), 0, "python")
    assert inflow[:3] == ("inflow", pytest.approx(0.05), pytest.approx(0.05 + 0.1 * INFLOW))
    assert heater[:3] == ("heater", 3e5, pytest.approx(3e5 + 0.1 * HEATER))
    assert [(one.kind, one.name) for one in inflow.panels] == [("actuator", "inflow"), ("signal", "level")]
    assert [(one.kind, one.name) for one in heater.panels] == [("actuator", "heater"), ("signal", "temperature")]
    held, stepped = inflow.panels[1].lines
    assert inflow.panels[1].mark == 40.0  # in the middle of 40 steps of 2 s
    assert np.array_equal(held.values[:21], stepped.values[:21])
    # Of dl/dt = u - 0.05 l the answer to a step of 0.01 is 0.2 (1 - 0.9^n), in steps of 2 s.
    assert stepped.values[-1] - held.values[-1] == pytest.approx(0.2 * (1.0 - 0.9**20), rel=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"env": "Pendulum-v1"}, "Pendulum-v1 has no constraints that a policy could be judged by: give its"),
        ({"scenarios": ["nominl"]}, "Tank-v0 has no scenario 'nominl': did you mean 'nominal'?"),
        ({"scenarios": "nominal"}, "scenarios must be a list of names, got 'nominal'"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"compare": {"random": open_fully}}, "compare= names 'random', which is compared with anyway"),
    ],
)
def test_mistakes_are_named(tank, given, message):
    with pytest.raises(ValueError, match="^" + message.replace("?", r"\?").replace("(", r"\(")):
        evaluate_safety(open_fully, **{"env": tank, "device": "python", **given})
