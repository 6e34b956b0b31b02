"""Policy iteration: closed forms, linear programming, ties, and worlds without a discount."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_oracle import TAXI, corridor, gambler, linear_programme, stay_or_leave

from velocirl.tabular.planning import policy_evaluation
from velocirl.tabular.planning.faults import ModelError
from velocirl.tabular.planning.models import TabularModel
from velocirl.tabular.planning.policy_iteration import policy_iteration
from velocirl.tabular.planning.random_models import random_model
from velocirl.tabular.planning.value_iteration import value_iteration


@pytest.mark.parametrize(("gamma", "value", "action"), [(0.0, 5.0, 1), (0.75, 5.0, 1), (0.9, 10.0, 0)])
def test_stay_or_leave_by_hand(gamma, value, action):
    plan = policy_iteration(stay_or_leave(), gamma)
    assert plan.values == pytest.approx([value], abs=1e-12)
    assert plan.policy.tolist() == [action]


@pytest.mark.parametrize("chance", [0.3, 0.5])
def test_gambler_by_hand_without_a_discount(chance):
    capital, odds = np.arange(1, 40), (1 - chance) / chance
    expected = capital / 40 if chance == 0.5 else (odds**capital - 1) / (odds**40 - 1)
    plan = policy_iteration(gambler(40, chance), 1.0)
    assert plan.values == pytest.approx(expected, abs=1e-12)
    assert plan.error_bound < 1e-10


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), gamma=st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999]))
def test_random_models_equal_linear_programming(seed, gamma):
    model = random_model(12, 3, 3, seed, ending=0.1, illegal=0.2)
    plan = policy_iteration(model, gamma)
    assert plan.values == pytest.approx(linear_programme(model, gamma), abs=1e-8)
    assert plan.error_bound < 1e-8


GRIDS = ["FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1"]


@pytest.mark.parametrize(("name", "gamma"), [*itertools.product(GRIDS, [0.9, 0.99, 1.0]), (TAXI, 0.99)])
def test_gymnasium_tables_equal_value_iteration(name, gamma):
    model = TabularModel.from_gymnasium(name)
    plan = policy_iteration(model, gamma)
    assert plan.values == pytest.approx(value_iteration(model, gamma).values, abs=1e-8)
    evaluated = policy_evaluation.evaluate_policy(model, plan.policy, gamma)
    assert evaluated == pytest.approx(plan.values, abs=1e-8)
    assert plan.iterations <= 20


def test_ties_do_not_go_round_in_circles():
    # Every action is worth the same, but for rounding.
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(20), (20, 8))
    plan = policy_iteration(TabularModel.from_arrays(probabilities, np.full((20, 8), 0.1)), 0.999)
    assert plan.values == pytest.approx(np.full(20, 100.0), abs=1e-8)
    assert plan.iterations <= 2


def test_masks_hold():
    model = TabularModel.from_outcomes([[[(1.0, 0, 9.0, True)], [(1.0, 0, 1.0, True)]]], legal=[[False, True]])
    plan = policy_iteration(model, 0.9)
    assert (plan.policy.tolist(), plan.values.tolist()) == ([1], [1.0])
    assert plan.action_values.tolist() == [[-np.inf, 1.0]]


def test_without_a_discount_the_plan_arrives():
    plan = policy_iteration(corridor(6), 1.0)
    assert plan.values.tolist() == [1.0] * 6
    assert plan.policy.tolist() == [1] * 6
    costly = policy_iteration(corridor(6, step_reward=-1.0), 1.0)
    assert costly.values.tolist() == [-5.0, -4.0, -3.0, -2.0, -1.0, 0.0]


def test_without_a_discount_endless_rewards_are_refused_by_state():
    with pytest.raises(ModelError, match="state 0: rewards go on for ever under this policy; take a gamma below 1"):
        policy_iteration(stay_or_leave(), 1.0)


def test_large_models_are_swept(monkeypatch):
    model = random_model(300, 3, 4, 5, ending=0.02)
    solved = policy_iteration(model, 0.97)
    monkeypatch.setattr(policy_evaluation, "DENSE_STATES", 10)
    swept = policy_iteration(model, 0.97)
    assert swept.values == pytest.approx(solved.values, abs=1e-9)
    assert (swept.policy == solved.policy).all()
    assert swept.error_bound <= 2e-10
    assert not (swept.values == solved.values).all()  # or both went the same way


def test_too_few_iterations_are_an_error():
    with pytest.raises(RuntimeError, match="after 1 policies there was still a better one: raise max_iterations"):
        policy_iteration(random_model(30, 4, 3, 0), 0.95, max_iterations=1)
