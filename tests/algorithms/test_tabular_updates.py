"""Every tabular algorithm's compiled loop does what a textbook says, update by update."""

import numpy as np
import pytest
from choosing import slow_but
from garnet import ACTIONS, STATES, install, model_of, one_way, params_of
from tabular_cases import CASES, GAMMA, QUICK, made, reference, table_of
from tabular_oracle import Watch

from velocirl import NumericalError


@pytest.mark.parametrize("case", slow_but(QUICK, CASES))
def test_updates_are_those_of_the_textbook(case):
    """Episodes end and are cut, actions explore, five copies share the table."""
    model = model_of(1)
    agent = install(made(case), params_of(model))
    watch, oracle = Watch(agent, 0.2, 0.3, GAMMA), reference(case, 0.2, 0.3)
    ends, cuts = 0, 0
    for _ in range(300):
        steps = watch.round(model.legal)
        oracle.round(steps)
        assert all(model.legal[step.state, step.action] for step in steps)
        ends += sum(step.terminated for step in steps)
        cuts += sum(step.over and not step.terminated for step in steps)
        np.testing.assert_allclose(table_of(agent), oracle.values, rtol=0, atol=1e-5)
    assert ends > 10
    assert cuts > 5
    assert (oracle.values[:, model.legal] != 0).mean() > 0.9


@pytest.mark.parametrize("case", slow_but(QUICK, CASES))
def test_cut_episodes_are_valued_by_their_last_state(case):
    """Nothing ends but by the limit of 20 steps."""
    model = model_of(2, ending=0.0)
    agent = install(made(case), params_of(model))
    watch, oracle = Watch(agent, 0.2, 0.3, GAMMA), reference(case, 0.2, 0.3)
    for _ in range(100):
        oracle.round(watch.round(model.legal))
    np.testing.assert_allclose(table_of(agent), oracle.values, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", slow_but({"q-learning", "double-q-learning", "q-lambda"}, CASES))
def test_every_duplicate_counts(case):
    """Seven copies in one state take the same action: each moves its value a step of what is left to go."""
    copies, step = 7, 0.25
    params = {**params_of(one_way(1.0, True)), "allowed": np.tile([0, 1, 0], STATES)}
    agent = install(made(case, copies), params)
    agent.learner.fleet.copies.state["place"] = 2
    agent.learner.fleet.copies.observation[:] = 2
    watch = Watch(agent, step, 0.5, GAMMA)
    steps = watch.round(np.tile([False, True, False], (STATES, 1)))
    assert {(one.state, one.action, one.terminated) for one in steps} == {(2, 1, True)}
    counts = np.bincount([one.coin for one in steps], minlength=agent.rule.sets)
    assert counts.sum() == copies
    assert (counts > 0).all()
    expected = np.zeros_like(table_of(agent))
    expected[:, 2, 1] = 1 - (1 - step) ** counts
    np.testing.assert_allclose(table_of(agent), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("case", slow_but({"q-learning", "double-q-learning", "q-learning 3", "q-lambda"}, CASES))
def test_a_cut_is_not_an_end(case):
    """One a step for ever is worth 1 / (1 - gamma), though every episode is cut; where it ends at once, it is 1."""
    for ends, worth in ((False, 5.0), (True, 1.0)):
        agent = install(made(case, learning_rate=0.5), params_of(one_way(1.0, ends))).learn(100_000)
        np.testing.assert_allclose(table_of(agent), worth, rtol=1e-4)


@pytest.mark.parametrize("case", slow_but(QUICK, CASES))
def test_values_begin_where_they_are_told_to(case):
    agent = made(case, initial_value=7.5)
    assert (table_of(agent) == 7.5).all()
    agent = install(agent, params_of(one_way(1.0, True)))
    watch = Watch(agent, 0.5, 0.0, GAMMA)
    first = {(step.state, step.action, step.coin) for step in watch.round(np.ones((STATES, ACTIONS), bool))}
    moved = np.argwhere(table_of(agent).transpose(1, 2, 0) != 7.5)
    if "3" not in case:
        assert {tuple(pair) for pair in moved} == first
    assert (table_of(agent) <= 7.5).all()


@pytest.mark.slow
def test_traces_that_vanish_are_q_learning():
    model = model_of(1)
    agent = install(made("q-lambda", trace_decay=0.0), params_of(model))
    watch, oracle = Watch(agent, 0.2, 0.3, GAMMA), reference("q-learning", 0.2, 0.3)
    for _ in range(300):
        oracle.round(watch.round(model.legal))
    np.testing.assert_allclose(table_of(agent), oracle.values, rtol=0, atol=1e-5)


def test_what_is_no_number_is_found_out():
    agent = install(made("q-learning"), params_of(one_way(1.0, False)))
    agent.learn(1000)
    agent.learner.fleet.copies.params["first_reward"][3] = np.nan
    agent.learner.fleet.copies.params["second_reward"][3] = np.nan
    message = r"a reward of the environment is not finite: copy 3, step 1000 of the run \(0 of this rollout\)"
    with pytest.raises(NumericalError, match=message):
        agent.learn(1000)
