"""Value iteration: against closed forms, linear programming and policy iteration, and its guaranteed bound."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_oracle import TAXI, corridor, episodic_arrays, gambler, linear_programme, stay_or_leave

from velocirl.tabular.planning.backups import Backup
from velocirl.tabular.planning.horizons import longest_episode
from velocirl.tabular.planning.models import TabularModel
from velocirl.tabular.planning.policy_evaluation import evaluate_policy
from velocirl.tabular.planning.policy_iteration import policy_iteration
from velocirl.tabular.planning.random_models import random_model
from velocirl.tabular.planning.value_iteration import value_iteration


@pytest.mark.parametrize(("gamma", "value", "action"), [(0.0, 5.0, 1), (0.75, 5.0, 1), (0.9, 10.0, 0)])
def test_stay_or_leave_by_hand(gamma, value, action):
    plan = value_iteration(stay_or_leave(), gamma)
    assert plan.values == pytest.approx([value], abs=1e-10)
    assert plan.action_values[0] == pytest.approx([1.0 + gamma * value, 5.0], abs=1e-10)
    assert plan.policy.tolist() == [action]


@pytest.mark.parametrize("chance", [0.3, 0.5, 0.6])
def test_gambler_by_hand_without_a_discount(chance):
    capital = np.arange(1, 10)
    odds = (1 - chance) / chance
    expected = capital / 10 if chance == 0.5 else (odds**capital - 1) / (odds**10 - 1)
    assert value_iteration(gambler(10, chance), 1.0).values == pytest.approx(expected, abs=1e-10)


def test_corridor_by_hand():
    plan = value_iteration(corridor(5), 0.5)
    assert plan.values.tolist() == [0.0625, 0.125, 0.25, 0.5, 1.0]
    assert plan.action_values[:, 0].tolist() == [0.03125, 0.0625, 0.125, 0.25, 0.5]
    assert plan.iterations == 6  # the fifth is right, the sixth sees that it is


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_random_models_equal_linear_programming_and_policy_iteration(seed, gamma):
    model = random_model(30, 4, 5, seed, ending=0.05, illegal=0.3)
    plan = value_iteration(model, gamma)
    assert plan.values == pytest.approx(linear_programme(model, gamma), abs=1e-8)
    other = policy_iteration(model, gamma)
    assert plan.values == pytest.approx(other.values, abs=1e-8)
    assert (plan.policy == other.policy).all()
    assert plan.error_bound <= 1e-10
    assert (np.isneginf(plan.action_values) == ~model.legal).all()
    assert model.legal[np.arange(30), plan.policy].all()
    assert (plan.values == plan.action_values.max(axis=1)).all()


@pytest.mark.parametrize("seed", range(3))
def test_random_episodes_without_a_discount_equal_linear_programming(seed):
    model = TabularModel.from_arrays(*episodic_arrays(12, 3, seed))
    plan = value_iteration(model, 1.0)
    assert plan.values == pytest.approx(linear_programme(model, 1.0), abs=1e-8)
    assert plan.values == pytest.approx(policy_iteration(model, 1.0).values, abs=1e-8)
    assert plan.error_bound <= 1e-10
    assert plan.values[-1] == 0.0


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    states=st.integers(1, 12),
    actions=st.integers(1, 4),
    gamma=st.floats(0.0, 0.99),
    tolerance=st.floats(1e-9, 1.0),
)
def test_values_are_within_the_bound_and_the_bound_within_the_tolerance(seed, states, actions, gamma, tolerance):
    model = random_model(states, actions, 1 + seed % states, seed, ending=0.1, illegal=0.2)
    plan = value_iteration(model, gamma, tolerance)
    assert plan.error_bound <= tolerance
    exact = policy_iteration(model, gamma)
    assert np.abs(plan.values - exact.values).max() <= plan.error_bound + exact.error_bound


@pytest.mark.parametrize("gamma", [0.5, 0.95])
def test_each_sweep_contracts_the_error_by_gamma(gamma):
    model = random_model(40, 3, 4, 7)
    exact = policy_iteration(model, gamma).values
    backup = Backup(model, gamma)
    assert backup.rate == pytest.approx(gamma, abs=1e-12)
    values = np.random.default_rng(1).normal(0.0, 100.0, 40)
    for _ in range(30):
        swept = backup(values).max(axis=1)
        assert np.abs(swept - exact).max() <= gamma * np.abs(values - exact).max() + 1e-10
        values = swept
    # An error that is the same everywhere falls by gamma exactly.
    assert backup(exact + 8.0).max(axis=1) == pytest.approx(exact + 8.0 * gamma, abs=1e-10)


def test_fine_values_stop_at_rounding_and_say_so():
    plan = value_iteration(random_model(20, 2, 3, 0), 0.999, tolerance=1e-15)
    assert 1e-15 < plan.error_bound < 1e-8
    assert np.abs(plan.values - policy_iteration(random_model(20, 2, 3, 0), 0.999).values).max() <= plan.error_bound


@pytest.mark.parametrize(("name", "expected"), [("FrozenLake-v1", 14 / 17), ("FrozenLake8x8-v1", 1.0)])
def test_frozen_lake_chance_to_arrive(name, expected):
    model = TabularModel.from_gymnasium(name)
    plan = value_iteration(model, 1.0)
    assert model.start_value(plan.values) == pytest.approx(expected, abs=1e-9)
    # The policy must get there too: to walk into the wall for ever has the same action value.
    assert model.start_value(evaluate_policy(model, plan.policy, 1.0)) == pytest.approx(expected, abs=1e-9)
    assert plan.error_bound == math.inf


@pytest.mark.parametrize("name", ["FrozenLake-v1", "FrozenLake8x8-v1"])
@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_frozen_lake_equals_linear_programming(name, gamma):
    model = TabularModel.from_gymnasium(name)
    assert value_iteration(model, gamma).values == pytest.approx(linear_programme(model, gamma), abs=1e-8)


def test_cliff_walking_is_13_steps():
    cliff = TabularModel.from_gymnasium("CliffWalking-v1")
    plan = value_iteration(cliff, 1.0)
    assert cliff.start_value(plan.values) == -13.0
    assert plan.policy[36] == 0  # up, away from the cliff
    assert plan.error_bound < 1e-11  # steps cost, so that there is a bound although one could walk for ever
    assert value_iteration(cliff, 0.9).values[36] == pytest.approx(-(1 - 0.9**13) / 0.1, abs=1e-9)


def test_taxi_pays_20_for_the_passenger_less_1_for_each_step_before():
    model = TabularModel.from_gymnasium(TAXI)
    plan = value_iteration(model, 1.0)
    assert (plan.values == np.round(plan.values)).all()  # nothing is left to chance
    state = ((0 * 5 + 4) * 5 + 4) * 4 + 1  # row 0, column 4, the passenger aboard, to the green stop: which is here
    assert plan.values[state] == 20.0
    assert plan.policy[state] == 5  # set down
    assert plan.values == pytest.approx(policy_iteration(model, 1.0).values, abs=1e-10)
    assert plan.error_bound < 1e-11
    discounted = value_iteration(model, 0.9)
    steps = 20.0 - plan.values  # before the last
    assert discounted.values == pytest.approx(20 * 0.9**steps - (1 - 0.9**steps) / 0.1, abs=1e-9)


def test_without_a_discount_waiting_for_nothing_is_no_plan():
    plan = value_iteration(corridor(6), 1.0)
    assert plan.values.tolist() == [1.0] * 6
    assert (plan.action_values == 1.0).all()  # to wait is as good
    assert plan.policy.tolist() == [1] * 6


def test_without_a_discount_endless_rewards_are_refused():
    with pytest.raises(RuntimeError, match=r"after 50 sweeps a value still changed by 1: take a gamma below 1"):
        value_iteration(stay_or_leave(), 1.0, max_sweeps=50)
    with pytest.raises(RuntimeError, match="raise max_sweeps"):
        value_iteration(stay_or_leave(), 0.9, max_sweeps=50)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, math.nan, math.inf, True, "0.9", None])
@pytest.mark.parametrize("plan", [value_iteration, policy_iteration])
def test_impossible_discounts_are_refused(plan, gamma):
    with pytest.raises(ValueError, match="gamma must be a number from 0 to 1, got"):
        plan(stay_or_leave(), gamma)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, math.nan])
def test_impossible_tolerances_are_refused(tolerance):
    with pytest.raises(ValueError, match="tolerance must be above 0"):
        value_iteration(stay_or_leave(), 0.9, tolerance)


def test_longest_episode_bounds_the_expected_steps():
    # The fair gambler with k plays k (goal - k) times on average, at most 25 with a goal of 10.
    assert 25.0 <= longest_episode(gambler(10, 0.5), 1000) <= 50.0
    assert longest_episode(corridor(4), 1000) == math.inf  # where one may wait
