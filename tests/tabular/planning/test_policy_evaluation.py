"""The value of a given policy: against dense algebra and closed forms, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_oracle import corridor, dense, stay_or_leave

from velocirl.tabular.planning import policy_evaluation
from velocirl.tabular.planning.endings import ending_actions
from velocirl.tabular.planning.faults import ModelError
from velocirl.tabular.planning.models import TabularModel
from velocirl.tabular.planning.policy_evaluation import evaluate_policy, under
from velocirl.tabular.planning.random_models import random_model


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), gamma=st.floats(0.0, 0.99))
def test_random_policies_equal_dense_algebra(seed, gamma):
    model = random_model(10, 3, 4, seed, ending=0.1, illegal=0.3)
    weights = np.random.default_rng(seed).random((10, 3)) * model.legal
    weights /= weights.sum(axis=1, keepdims=True)
    moves, paid = dense(model)
    followed = np.einsum("sa,sat->st", weights, moves)
    expected = np.linalg.solve(np.eye(10) - gamma * followed, np.einsum("sa,sa->s", weights, paid))
    assert evaluate_policy(model, weights, gamma) == pytest.approx(expected, abs=1e-10)

    certain = weights.argmax(axis=1)
    one_hot = np.eye(3)[certain]
    assert (evaluate_policy(model, certain, gamma) == evaluate_policy(model, one_hot, gamma)).all()


def test_a_policy_leaves_one_action():
    chain = under(stay_or_leave(), [[0.75, 0.25]])
    assert (chain.actions, chain.probabilities.tolist(), chain.rewards.tolist()) == (1, [0.75, 0.25], [1.0, 5.0])
    # V = 0.75 (1 + V) + 0.25 * 5 without a discount: 3 steps of 1 on average, then 5.
    assert evaluate_policy(stay_or_leave(), [[0.75, 0.25]], 1.0) == pytest.approx([8.0], abs=1e-12)


@pytest.mark.parametrize("dense_states", [0, 100])
def test_without_a_discount_a_policy_that_waits_for_nothing_is_worth_nothing(monkeypatch, dense_states):
    monkeypatch.setattr(policy_evaluation, "DENSE_STATES", dense_states)
    assert evaluate_policy(corridor(4), [1, 1, 0, 1], 1.0).tolist() == [0.0, 0.0, 0.0, 1.0]
    assert evaluate_policy(corridor(4), [1, 1, 1, 1], 1.0).tolist() == [1.0, 1.0, 1.0, 1.0]
    with pytest.raises(ModelError, match="state 0: rewards go on for ever"):
        evaluate_policy(corridor(4, step_reward=-1.0), [1, 1, 0, 1], 1.0)
    assert evaluate_policy(corridor(4, step_reward=-1.0), [1, 1, 0, 1], 0.5)[2] == pytest.approx(-2.0, abs=1e-9)


def test_ending_actions_take_the_nearest_end():
    right = corridor(5)
    assert ending_actions(right, right.legal).tolist() == [1] * 5
    blocked = right.legal.copy()
    blocked[2, 1] = False
    assert ending_actions(right, blocked).tolist() == [-1, -1, -1, 1, 1]
    # Both actions of state 0 lead to an end, the second at once; the first of state 1 only with probability 0.
    model = TabularModel.from_outcomes(
        [
            [[(1.0, 1, 0.0, False)], [(0.9, 0, 0.0, False), (0.1, 0, 0.0, True)]],
            [[(1.0, 1, 0.0, False), (0.0, 1, 0.0, True)], [(1.0, 0, 0.0, False)]],
        ]
    )
    assert ending_actions(model, model.legal).tolist() == [1, 1]
    # State 2 is as near to the end by way of 1 as by way of 0: the first action is taken.
    end = [(1.0, 0, 0.0, True)]
    model = TabularModel.from_outcomes([[end], [end], [[(1.0, 1, 0.0, False)], [(1.0, 0, 0.0, False)]]])
    assert ending_actions(model, model.legal).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([2, 0], "state 0: the policy must take an action below 2, got 2"),
        ([0, -1], "state 1: the policy must take an action below 2, got -1"),
        ([0, 1], "state 1, action 1: the policy takes it, but it is illegal"),
        ([[0.5, 0.5], [0.5, 0.5]], "state 1, action 1: the policy takes it, but it is illegal"),
        ([[0.5, 0.4], [1.0, 0.0]], r"state 0: the policy must be probabilities that sum to 1, got \[0.5, 0.4\]"),
        ([[1.5, -0.5], [1.0, 0.0]], "state 0: the policy must be probabilities"),
        ([[np.nan, 0.5], [1.0, 0.0]], "state 0: the policy must be probabilities"),
        (
            [0.0, 1.0],
            r"whole numbers of the shape \(2,\) or probabilities of the shape \(2, 2\), got float64 of \(2,\)",
        ),
        ([0, 1, 0], "a policy must be"),
    ],
)
def test_impossible_policies_are_refused(policy, message):
    end = [(1.0, 0, 0.0, True)]
    with pytest.raises(ValueError, match=message):
        evaluate_policy(TabularModel.from_outcomes([[end, end], [end]]), policy, 0.9)
