"""Risk of emergency stops: verdicts against true rates of stops, and what bounds them."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from fqe_agreement import agreement, plants
from gymnasium.spaces import Box, Discrete

import velocirl
from velocirl import Dataset, DatasetInfo, FittedQEvaluation
from velocirl.judging.process import Stretches, process_of
from velocirl.judging.rollouts import Rollouts
from velocirl.judging.stops import MAX_STOPS, MIN_EPISODES, StopRisk, stop_risk, stops_in

HORIZON, LIMIT = 20, 1.0
QUICK = {"device": "python", "hidden": (4,), "batch_size": 4, "fits": 2, "updates": 2}
INFO = DatasetInfo(Box(-3, 3, (1,), np.float32), Box(-1, 1, (1,), np.float32), constraints=("band", "limit"))


def drifting(policy, episodes=150, seed=0, noise=0.2):
    """Record x' = x + 0.2 a, stopped above 1; `band` is violated above 0.8."""
    generator, found = np.random.default_rng(seed), []
    for _ in range(episodes):
        x = generator.uniform(-0.5, 0.5)
        seen, done, costs = [x], [], []
        while len(done) < HORIZON and x <= LIMIT:
            a = float(np.clip(policy(x) + noise * generator.normal(), -1, 1))
            x += 0.2 * a
            seen.append(x)
            done.append(a)
            costs.append([x > 0.8, x > LIMIT])
        stopped = x > LIMIT
        ends = np.zeros(len(done), bool)
        ends[-1] = True
        found.append({"observations": np.array(seen)[:, None], "actions": np.array(done)[:, None],
                      "rewards": np.zeros(len(done)), "costs": np.array(costs, float),
                      "terminations": ends & stopped, "truncations": ends & ~stopped})  # fmt: skip
    return Dataset.from_episodes(found, INFO)


@pytest.fixture(scope="module")
def operated():
    """Data of a controller that never comes near the limit."""
    return drifting(lambda x: -0.5 * x)


def steady(x):
    return -0.5 * x


def rising(x):
    return np.full_like(x, 0.9)


def test_a_policy_that_leaves_the_data_is_not_fit_though_no_stop_was_recorded(operated):
    """At recorded states the second one is off by little; by itself it goes where the data never was."""
    assert not stops_in(operated).any()
    safe = stop_risk(steady, operated)
    assert safe.fit
    assert safe.probability == 0.0
    assert 0.0 < safe.high <= 0.05
    assert safe.rollouts is not None
    assert safe.rollouts.follows == HORIZON
    creeping = stop_risk(lambda x: -0.5 * x + 0.35, operated)
    assert not creeping.fit
    assert creeping.left > 0.9
    assert any("rollouts leave the data" in reason for reason in creeping.speaks_against())


def test_signals_that_are_sums_of_others_do_not_drive_rollouts_out_of_the_data(operated):
    """Flows of a network, total of several meters: rounding is all that their directions vary by."""
    level = operated.observations[:, :1].astype(np.float64)
    meter = np.random.default_rng(0).normal(size=level.shape)
    seen = np.concatenate([level, meter, 200.0 + 3.0 * level - meter, np.full_like(level, 7.0)], axis=1)
    space = Box(-np.inf, np.inf, (4,), np.float32)
    data = Dataset(
        replace(INFO, observation_space=space), {**operated.columns, "observations": seen.astype(np.float32)}
    )
    risk = stop_risk(lambda row: steady(row[:1]), data, **QUICK)
    assert risk.left == 0.0
    assert risk.fit


def test_recorded_stops_are_met_by_a_policy_that_causes_them():
    risks = {}
    data = drifting(lambda _: 0.0, episodes=300, noise=0.8)
    assert 10 < stops_in(data).sum() < 150
    for name, policy in (("safe", steady), ("unsafe", rising)):
        risks[name] = stop_risk(policy, data, **QUICK)
    assert risks["unsafe"].stopped > 0.9
    assert not risks["unsafe"].fit
    assert "emergency stop" in risks["unsafe"].speaks_against()[0]
    assert risks["safe"].stopped == 0.0


def test_ten_steps_are_too_little_to_judge():
    few = drifting(lambda x: -0.5 * x, episodes=20)
    judged = velocirl.judge_offline(steady, few, **QUICK)
    assert (judged.verdict, judged.fit) == ("too little data to judge", False)
    assert judged.speaks_against[0].startswith("too little data to judge: ")
    assert str(judged).startswith("Verdict: too little data to judge.\nAgainst deploying it: too little data")
    assert judged.stops.effective < MIN_EPISODES
    assert json.loads(json.dumps(judged.as_dict(), allow_nan=False))["verdict"] == "too little data to judge"
    single = Dataset.from_episodes([few.episode(0)], INFO)
    found = velocirl.fitted_q_evaluation(steady, single, **QUICK)
    assert found.interval == (found.lowest, found.highest)  # every possible value


def risk_of(stopped=0, far=0, effective=100.0, estimates=(0.0, 0.0), count=100):
    fitted = FittedQEvaluation("policy", np.array(estimates), np.zeros(3), 50, HORIZON, 1.0, 0.0, 1.0)
    unfamiliar = (np.arange(count) < far) * 1.0
    farthest = np.full(count, 0.9)
    return StopRisk(fitted, Rollouts(unfamiliar, farthest, np.arange(count) < stopped, effective, HORIZON, HORIZON), 0)


@pytest.mark.parametrize(("risk", "high", "fit"), [
    (risk_of(), 1 - 0.05 ** (1 / 100), True),
    (risk_of(effective=MIN_EPISODES), 1 - 0.05 ** (1 / MIN_EPISODES), True),
    (risk_of(effective=MIN_EPISODES - 1), 1 - 0.05 ** (1 / (MIN_EPISODES - 1)), False),
    (risk_of(stopped=1), 0.0466, True),
    (risk_of(stopped=1, far=3), 0.0757, False),
    (risk_of(far=100), 1.0, False),
    (risk_of(effective=0.5), 1.0, False),
    (risk_of(estimates=(0.3, 0.3)), 1 - 0.05 ** (1 / 100), False),
])  # fmt: skip
def test_the_upper_end_is_exact_and_counts_what_left_the_data_as_stopped(risk, high, fit):
    assert risk.high == pytest.approx(high, abs=1e-4)
    assert risk.fit is fit


def test_estimates_of_what_cannot_be_negative_are_bounded():
    fitted = FittedQEvaluation("policy", np.array([0.0, 0.5, 0.1]), np.zeros(3), 50, HORIZON, 1.0, 0.0, 1.0)
    assert fitted.interval[0] == 0.0
    assert replace(fitted, estimates=np.array([0.2, 0.9, 0.9])).interval[1] == 1.0


def test_a_stop_saves_no_cost():
    """An episode of 2 steps and a stop at a horizon of 20 costs 1 for each of the 18 steps that it does not have."""
    info = replace(INFO, constraints=("limit",))
    short = {"observations": [[0.0], [0.5], [1.5]], "actions": [[1.0], [1.0]], "rewards": [0.0, 0.0],
             "costs": [[0.0], [1.0]], "terminations": [False, True], "truncations": [False, False]}  # fmt: skip
    data = Dataset.from_episodes([short], info)
    segments, stops = Stretches.of(data, HORIZON), stops_in(data)
    assert stops.tolist() == [False, True]
    assert segments.returns(1.0, data.costs.sum(1), stops.astype(float)).tolist() == [19.0]
    discounted = sum(0.5**k for k in range(1, HORIZON))
    assert segments.returns(0.5, data.costs.sum(1), stops.astype(float)) == pytest.approx([discounted])
    process = process_of(segments, None, data.costs.sum(1), 1.0, after=stops.astype(float))
    sample = process.sample(np.array([1] * 30), np.random.default_rng(0))
    for reward in sample.rewards:  # a mean of 1 whatever number of steps is left
        assert process.mean + process.deviation * reward == pytest.approx(1.0)


def test_a_stop_has_probability_1_and_any_other_step_that_of_its_successor():
    data = drifting(lambda _: 0.8, episodes=30)
    stops, segments = stops_in(data), Stretches.of(data, None)
    process = process_of(segments, None, stops.astype(np.float32), 1.0, probability=True)
    assert (process.limits, process.bounds) == ((0.0, 1.0), (0.0, 1.0))
    rows = np.arange(len(data))
    sample = process.sample(rows, np.random.default_rng(0))
    assert sample.rewards.tolist() == stops.tolist()
    left = sample.observations[::2, -1] * segments.horizon
    goes_on = ~stops & (left > 1.5)
    assert sample.actions[:, 0].tolist() == goes_on.tolist()  # the share of the successor's value
    assert set(sample.actions[:, 1].tolist()) == {1.0}  # weights


def test_other_observations_are_not_vouched_for():
    info = DatasetInfo(Discrete(3), Box(-1, 1, (1,), np.float32), constraints=("limit",))
    episode = {"observations": [0, 1, 2], "actions": [[0.0], [0.0]], "rewards": [0.0, 0.0], "costs": [[0.0], [0.0]]}
    risk = stop_risk(lambda _: np.zeros(1), Dataset.from_episodes([episode] * 80, info))
    assert (risk.fit, risk.high) == (False, 1.0)
    assert "cannot be compared with the data: Discrete(3)" in risk.speaks_against()[0]


def test_data_without_constraints_say_nothing_of_stops():
    data = drifting(lambda x: -0.5 * x, episodes=200)
    columns = {**data.columns, "costs": np.zeros((len(data), 0), np.float32)}
    bare = Dataset(replace(INFO, constraints=()), columns)
    judged = velocirl.judge_offline(steady, bare, **QUICK)
    assert not judged.fit
    assert judged.speaks_against[0].startswith("the data has no constraints: ")


@cache
def verdicts(name):
    """Return the verdicts on unsafe and on safe policies of one plant."""
    found = [(truth, risk.fit) for _, _, truth, risk in agreement(plants()[name], 3, fits=2, updates=2000)]
    return tuple([fit for truth, fit in found if (truth > MAX_STOPS) is unsafe] for unsafe in (True, False))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", plants())
def test_no_unsafe_policy_is_called_fit(name):
    unsafe, safe = verdicts(name)
    assert len(unsafe) >= 3
    assert len(safe) >= 4
    assert not any(unsafe)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_most_safe_policies_are_called_fit():
    """But for PowerGrid, whose rollouts of 600 steps drift from the data: there half of the safe ones are refused."""
    assert np.mean([fit for name in plants() if name != "PowerGrid-v0" for fit in verdicts(name)[1]]) >= 0.8
