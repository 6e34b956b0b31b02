"""Models: the same outcomes from every form in which they are given, and errors that name the state and action."""

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_oracle import TAXI

from velocirl.tabular.planning.faults import ModelError
from velocirl.tabular.planning.models import TabularModel
from velocirl.tabular.planning.random_models import random_model

# Two states; in state 1 only action 1 is legal, and it ends the episode.
TABLE = {
    0: {0: [(0.25, 0, 1.0, False), (0.75, 1, 2.0, False)], 1: [(1.0, 1, -1.0, True)]},
    1: {1: [(1.0, 0, 3.0, True)]},
}


def outcomes(model, state, action):
    """The outcomes of one pair, as they were given."""
    pair = state * model.actions + action
    rows = slice(model.offsets[pair], model.offsets[pair + 1])
    columns = (model.probabilities, model.next_states, model.rewards, model.terminated)
    return list(zip(*(column[rows].tolist() for column in columns), strict=True))


@pytest.mark.parametrize("nested", [TABLE, [[TABLE[0][0], TABLE[0][1]], [[], TABLE[1][1]]]], ids=["mappings", "lists"])
def test_outcomes_are_kept_as_given(nested):
    model = TabularModel.from_outcomes(nested, start=[0.5, 0.5])
    assert (model.states, model.actions) == (2, 2)
    assert [outcomes(model, *pair) for pair in ((0, 0), (0, 1), (1, 1))] == [TABLE[0][0], TABLE[0][1], TABLE[1][1]]
    assert model.legal.tolist() == [[True, True], [False, True]]
    assert model.pairs.tolist() == [0, 0, 1, 3]
    assert model.start_value([1.0, 4.0]) == 2.5


def test_arrays_give_the_same_model_as_lists():
    probabilities = [[[0.25, 0.75], [0.0, 1.0]], [[0.5, 0.5], [1.0, 0.0]]]
    rewards = [[[1.0, 2.0], [9.0, -1.0]], [[0.0, 0.0], [3.0, 9.0]]]
    model = TabularModel.from_arrays(probabilities, rewards, legal=[[True, True], [False, True]])
    assert outcomes(model, 0, 0) == TABLE[0][0]
    assert outcomes(model, 0, 1) == [(1.0, 1, -1.0, False)]
    assert outcomes(model, 1, 0) == []
    assert outcomes(model, 1, 1) == [(1.0, 0, 3.0, False)]


def test_terminal_states_end_what_leads_to_them_and_are_worth_nothing_themselves():
    probabilities = np.array([[[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.1], [7.0, 0.0]]])  # of state 1 nothing counts
    model = TabularModel.from_arrays(probabilities, [[1.0, 2.0], [np.nan, 5.0]], [False, True])
    assert outcomes(model, 0, 0) == [(0.25, 0, 1.0, False), (0.75, 1, 1.0, True)]
    assert outcomes(model, 0, 1) == [(1.0, 0, 2.0, False)]
    assert outcomes(model, 1, 0) == outcomes(model, 1, 1) == [(1.0, 1, 0.0, True)]
    assert probabilities[1, 1, 0] == 7.0  # the caller's array is the caller's
    masked = TabularModel.from_arrays(probabilities, np.ones((2, 2)), [False, True], legal=[[True, False], [False] * 2])
    assert masked.legal.tolist() == [[True, False], [True, True]]  # a mask has nothing to say of terminal states


def test_a_mask_takes_actions_away():
    model = TabularModel.from_outcomes(TABLE, legal=[[False, True], [False, True]], actions=2)
    assert outcomes(model, 0, 0) == []
    assert outcomes(model, 0, 1) == TABLE[0][1]
    assert TabularModel.from_outcomes(TABLE, actions=3).legal.tolist() == [[True, True, False], [False, True, False]]


def test_a_model_cannot_be_changed_after_it_was_checked():
    given = np.ones(1)
    model = TabularModel(1, 1, np.array([0, 1]), given, np.zeros(1, int), np.ones(1), np.array([True]))
    given[0] = 2.0
    assert model.probabilities[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        model.probabilities[0] = 2.0


@pytest.mark.parametrize("name", ["FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", TAXI])
def test_gymnasium_tables_are_read_whole(name):
    env = gymnasium.make(name)
    model = TabularModel.from_gymnasium(name)
    table = env.unwrapped.P  # pyright: ignore[reportAttributeAccessIssue]
    assert (model.states, model.actions) == (env.observation_space.n, env.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]
    for state, actions in table.items():
        for action, expected in actions.items():
            assert outcomes(model, state, action) == [tuple(outcome) for outcome in expected]
    assert model.legal.all()
    start = env.unwrapped.initial_state_distrib  # pyright: ignore[reportAttributeAccessIssue]
    assert model.start is not None
    assert model.start.tolist() == list(start)


def test_gymnasium_by_environment_and_with_options():
    by_name = TabularModel.from_gymnasium("FrozenLake-v1", is_slippery=False)
    by_environment = TabularModel.from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=False))
    assert len(by_name.rewards) == 16 * 4  # certain moves; slippery ones have three outcomes
    assert (by_name.next_states == by_environment.next_states).all()


def test_gymnasium_environment_without_a_table_is_refused():
    with pytest.raises(ValueError, match=r"CartPole-v1 has no table of outcomes P.*explore_model"):
        TabularModel.from_gymnasium("CartPole-v1")


def single(*outcomes):
    """A second state with an action 1 of these outcomes, beside one that is right."""
    right = [(1.0, 0, 0.0, True)]
    return [[right, right], [right, list(outcomes)]]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (single((0.5, 0, 0.0, True)), "state 1, action 1: the probabilities must sum to 1, got 0.5"),
        (single((1.0 + 2e-9, 0, 0.0, True)), "state 1, action 1: the probabilities must sum to 1"),
        (single((1.5, 0, 0.0, True), (-0.5, 1, 0.0, True)), "state 1, action 1: a probability must be at least 0"),
        (single((np.nan, 0, 0.0, True)), "state 1, action 1: a probability must be at least 0, got nan"),
        (single((1.0, 2, 0.0, True)), "state 1, action 1: a next state must be a whole number from 0 to 1, got 2"),
        (single((1.0, -1, 0.0, True)), "state 1, action 1: a next state must be a whole number from 0 to 1, got -1"),
        (single((1.0, 0.5, 0.0, True)), "state 1, action 1: a next state must be a whole number"),
        (single((1.0, np.nan, 0.0, True)), "state 1, action 1: a next state must be a whole number"),
        (single((1.0, 0, np.inf, True)), "state 1, action 1: a reward must be finite, got inf"),
        (single((1.0, 0, 0.0)), r"state 1, action 1: an outcome must be \(probability, next_state, reward, terminated"),
        (single(("a", 0, 0.0, True)), "state 1, action 1: an outcome must be"),
        ([[[(1.0, 0, 0.0, True)]], [[]]], r"state 1: no action is legal.*\(1.0, 1, 0.0, True\)"),
    ],
)
def test_impossible_outcomes_are_refused_by_state_and_action(table, message):
    with pytest.raises(ModelError, match=message):
        TabularModel.from_outcomes(table)


def test_a_sum_within_rounding_is_accepted():
    model = TabularModel.from_outcomes([[[(0.1, 0, 0.0, True)] * 10]])
    assert sum([0.1] * 10) != 1.0
    assert len(model.probabilities) == 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TabularModel.from_outcomes([]), "at least one state"),
        (lambda: TabularModel.from_outcomes({0: TABLE[0], 2: TABLE[1]}), "without gaps: 1 is missing"),
        (lambda: TabularModel.from_outcomes({0: {-1: []}}), "the actions of state 0 must be numbered from 0"),
        (lambda: TabularModel.from_outcomes(TABLE, actions=1), "outcomes for 2 actions, but actions is 1"),
        (lambda: TabularModel.from_outcomes(TABLE, legal=[True]), r"legal must be booleans of the shape \(2, 2\)"),
        (lambda: TabularModel.from_outcomes(TABLE, legal=np.ones((2, 2), bool)), "state 1, action 0: it is legal, but"),
        (lambda: TabularModel.from_outcomes(TABLE, start=[1.0]), "start must be 2 probabilities"),
        (lambda: TabularModel.from_outcomes(TABLE, start=[0.5, 0.4]), "sum to 1, got the sum 0.9"),
        (lambda: TabularModel.from_outcomes(TABLE, start=[1.5, -0.5]), "at least 0"),
        (lambda: TabularModel.from_outcomes(TABLE).start_value([0, 0]), "does not say where episodes begin"),
        (lambda: TabularModel.from_arrays(np.ones((2, 2)), [0.0]), r"shape \(states, actions, states\), got \(2, 2\)"),
        (lambda: TabularModel.from_arrays(np.ones((1, 1, 1)), [0.0]), r"rewards must have the shape \(1, 1\) or"),
        (lambda: TabularModel.from_arrays(np.ones((1, 1, 1)), [[0.0]], [0]), "terminal must be booleans"),
        (lambda: TabularModel.from_arrays(np.zeros((1, 1, 1)), [[0.0]]), "state 0, action 0: it is legal, but nothing"),
        (lambda: TabularModel(1, 1, np.array([0, 2]), *[np.ones(1)] * 4), "offsets must be"),  # pyright: ignore[reportArgumentType]
        (lambda: TabularModel(1, 1, np.array([0, 1]), *[np.ones(1)] * 3, np.ones(2)), "equally long"),  # pyright: ignore
        (lambda: random_model(3, 2, 4, 0), "a branching from 1 to the number of states"),
        (lambda: random_model(3, 2, 1, 0, ending=1.5), "ending must be a probability, got 1.5"),
    ],
)
def test_what_makes_no_model_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@given(
    states=st.integers(1, 9),
    actions=st.integers(1, 4),
    seed=st.integers(0, 2**32),
    illegal=st.floats(0, 1),
    data=st.data(),
)
def test_random_models_have_the_shape_that_was_asked_for(states, actions, seed, illegal, data):
    branching = data.draw(st.integers(1, states))
    model = random_model(states, actions, branching, seed, illegal=illegal)
    for state in range(states):
        for action in np.flatnonzero(model.legal[state]):
            reached = [next_state for _, next_state, _, _ in outcomes(model, state, action)]
            assert len(set(reached)) == len(reached) == branching
    again = random_model(states, actions, branching, seed, illegal=illegal)
    assert (again.rewards == model.rewards).all()
    assert (again.next_states == model.next_states).all()


def test_random_models_draw_sets_evenly_and_end_as_often_as_asked():
    model = random_model(6, 5000, 2, 3, ending=0.25, illegal=0.5)
    low, high = np.sort(model.next_states.reshape(-1, 2), axis=1).T
    counts = np.bincount(low * 6 + high)
    share = len(low) / 15  # of each pair of states
    assert counts[counts > 0] == pytest.approx(share, abs=4.5 * share**0.5)
    assert (counts > 0).sum() == 15
    assert model.terminated.mean() == pytest.approx(0.25, abs=0.01)
    assert model.legal.mean() == pytest.approx(0.5, abs=0.015)
    assert (model.probabilities.reshape(-1, 2)[:, 0] < 0.3).mean() == pytest.approx(
        0.3, abs=0.02
    )  # a stick broken evenly
