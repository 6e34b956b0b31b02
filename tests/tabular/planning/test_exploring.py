"""Models found by exploring, TicTacToe among them: its exact optimum is what the environment's docstring says."""

import numpy as np
import pytest
from tic_tac_toe_oracle import CODES, cells_of, code_of, exact, game, outcome_of_policy, outcomes_of, value_of_policy

import velocirl
from velocirl import explore_model
from velocirl.environments import tic_tac_toe
from velocirl.tabular.planning.faults import ModelError
from velocirl.tabular.planning.policy_evaluation import evaluate_policy
from velocirl.tabular.planning.policy_iteration import policy_iteration
from velocirl.tabular.planning.value_iteration import value_iteration


def walk(length):
    """A walk on names: left or right, which ends at either end."""

    def outcomes(name):
        place = int(name)
        return {
            action: [(1.0, str(place + side), float(place + side == length), place + side in (0, length))]
            for action, side in enumerate((-1, 1))
        }

    return outcomes


def test_exploring_finds_what_can_be_reached_and_numbers_it_as_it_is_found():
    model, keys = explore_model(["3"], walk(5))
    assert keys == ["3", "2", "4", "1"]  # the ends are no states
    assert model.start is not None
    assert model.start.tolist() == [1.0, 0.0, 0.0, 0.0]
    plan = value_iteration(model, 0.5)
    assert dict(zip(keys, plan.values, strict=True)) == {"1": 0.125, "2": 0.25, "3": 0.5, "4": 1.0}
    assert plan.policy.tolist() == [1, 1, 1, 1]


def test_starts_are_equally_likely_or_as_given():
    model, keys = explore_model(["1", "2", "1"], walk(3))
    assert (keys, model.start.tolist()) == (["1", "2"], [0.5, 0.5])  # pyright: ignore[reportOptionalMemberAccess]
    model, keys = explore_model({"2": 0.75, "1": 0.25}, walk(3))
    assert (keys, model.start.tolist()) == (["2", "1"], [0.75, 0.25])  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    ("start", "outcomes", "message"),
    [
        (["a"], lambda key: {0: [(0.5, "a", 0.0, False)]}, "state 'a', action 0: the probabilities must sum to 1"),
        (["a"], lambda key: {}, "state 'a': no action is legal"),
        (["a"], lambda key: {0: [(1.0, "a")]}, "state 'a', action 0: an outcome must be"),
    ],
)
def test_faults_name_the_key(start, outcomes, message):
    with pytest.raises(ModelError, match=message):
        explore_model(start, outcomes)


def test_endless_worlds_and_empty_starts_are_refused():
    with pytest.raises(ValueError, match="more than 100 states can be reached: raise max_states"):
        explore_model([0], lambda key: {0: [(1.0, key + 1, 0.0, False)]}, max_states=100)
    with pytest.raises(ValueError, match="at least one state"):
        explore_model([], walk(3))


def test_tic_tac_toe_optimum_is_what_the_docstring_says():
    model, keys, plan = exact()
    values = dict(zip(keys.tolist(), plan.values, strict=True))
    begins = values[0]
    follows = np.mean([values[2 * 3**cell] for cell in range(9)])
    mean = model.start_value(plan.values)
    assert mean == pytest.approx((begins + follows) / 2, abs=1e-15)
    claim = f"{mean:.3f} on average ({begins:.3f} when it begins, {follows:.3f} when"
    assert claim in " ".join((tic_tac_toe.__doc__ or "").split())
    assert (f"{mean:.3f}", f"{begins:.3f}", f"{follows:.3f}") == ("0.960", "0.995", "0.925")
    assert plan.error_bound < 1e-12  # every game ends, so that there is a bound without a discount
    assert (plan.action_values > -np.inf).tolist() == [[mark == 0 for mark in cells_of(code)] for code in keys]


def test_tic_tac_toe_policy_iteration_and_illegal_moves_change_nothing():
    model, keys, plan = exact()
    assert policy_iteration(model, 1.0).values == pytest.approx(plan.values, abs=1e-12)
    with_illegal, same_keys = game(illegal_moves=True)
    assert (same_keys == keys).all()
    assert value_iteration(with_illegal, 1.0).values == pytest.approx(plan.values, abs=1e-12)


def test_tic_tac_toe_policies_are_worth_what_they_earn():
    model, keys, plan = exact()
    best = np.zeros(CODES, np.int64)
    best[keys] = plan.policy
    wins, draws, losses = outcome_of_policy(best)
    assert wins + draws + losses == pytest.approx(1.0, abs=1e-12)
    assert wins - losses == pytest.approx(value_of_policy(best), abs=1e-12)
    assert value_of_policy(best) == pytest.approx(model.start_value(plan.values), abs=1e-12)
    # Always the first cell: it loses at once if it follows onto that cell, and at its second move at the latest.
    assert value_of_policy(np.zeros(CODES, np.int64)) == pytest.approx(-1.0, abs=1e-12)
    assert outcome_of_policy(np.zeros(CODES, np.int64)) == pytest.approx((0.0, 0.0, 1.0), abs=1e-12)


def test_tic_tac_toe_random_policy_earns_nothing_on_average():
    model, _, _ = exact()
    evenly = model.legal / model.legal.sum(axis=1, keepdims=True)
    assert model.start_value(evaluate_policy(model, evenly, 1.0)) == pytest.approx(0.0, abs=1e-12)


def test_tic_tac_toe_follows_the_environment():
    env = velocirl.make("TicTacToe-v1", device="python")
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    ended = 0
    for _ in range(2000):
        action = int(rng.integers(9))
        code = code_of(observation)
        observation, reward, terminated, _, _ = env.step(action)
        expected = [outcome[1:] for outcome in outcomes_of(code, illegal_moves=True)[action]]
        assert (code_of(observation), reward, terminated) in expected
        if terminated:
            ended += 1
            observation, _ = env.reset()
    assert ended > 300
