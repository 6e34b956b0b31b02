"""What every tabular algorithm keeps: its seed decides all, files give it back exactly, storage changes nothing."""

import numpy as np
import pytest
from choosing import slow_but
from garnet import ACTIONS, STATES, install, model_of, one_way, params_of
from tabular_cases import CASES, GAMMA, OPTIMAL, made, table_of
from tabular_oracle import Watch

from velocirl import QLearning
from velocirl.optim.schedules import schedule_from
from velocirl.tabular.planning.value_iteration import value_iteration
from velocirl.training.agent import Agent

TOTAL = 50_000
SCHEDULES = ["constant", "linear", "exponential(end=0.1)", "two_phase(fraction=0.3, middle=0.2)"]


def trained(case, steps=TOTAL, callbacks=(), **config):
    return install(made(case, **config), params_of(model_of(1))).learn(steps, callbacks)


def everything(agent):
    state = agent.state()
    return state.document, {
        (name, field): array[field].tobytes()
        for name, array in state.arrays.items()
        for field in array.dtype.names or (...,)
    }


@pytest.mark.parametrize("case", slow_but({"q-learning"}, CASES))
def test_the_seed_decides_all(case):
    assert everything(trained(case)) == everything(trained(case))
    assert not np.array_equal(table_of(trained(case)), table_of(trained(case, seed=4)))


@pytest.mark.parametrize("storage", slow_but({"dense"}, ["dense", "sparse"]))
@pytest.mark.parametrize("case", slow_but({"q-learning", "q-lambda"}, CASES))
def test_going_on_from_a_file_is_going_on(case, storage, tmp_path):
    """In the middle of episodes, with the steps of windows that are not learnt from yet."""
    agent = trained(case, TOTAL, lambda agent: agent.steps < TOTAL // 3, storage=storage)
    assert TOTAL // 3 <= agent.steps < TOTAL
    if CASES[case] or case == "q-lambda":
        assert agent.learner.state()["current.window"]["count"].any()
    again = Agent.load(agent.save(tmp_path / "agent"))
    assert everything(again.learn()) == everything(trained(case, storage=storage))


@pytest.mark.parametrize("case", slow_but({"q-learning"}, CASES))
def test_a_sparse_table_learns_the_same(case):
    """To the last bit, though its rows lie in the order in which their states were met."""
    dense, sparse = trained(case), trained(case, storage="sparse")
    assert sorted(sparse.table.keys) == list(range(STATES))
    assert list(sparse.table.keys) != list(range(STATES))
    assert table_of(dense).tobytes() == table_of(sparse).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("case", [*OPTIMAL, "expected-sarsa"])
def test_double_precision_is_a_little_finer(case):
    """The first steps are the same; what is kept of the values is finer."""
    one, other = trained(case, 200), trained(case, 200, dtype="float64")
    assert table_of(other).dtype == np.float64
    np.testing.assert_allclose(table_of(one), table_of(other), rtol=1e-4, atol=1e-6)
    values = table_of(other)[:, model_of(1).legal]
    assert (values != values.astype(np.float32)).mean() > 0.5


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_exploration_follows_its_schedule(schedule):
    """Every action but the first has an error of 1, and next to nothing is learnt: the error counts what explores."""
    config = {"learning_rate": 1e-12, "exploration_schedule": schedule, "exploration_rate": 0.9}
    agent = install(made("q-learning", **config), params_of(one_way(1.0, True)))
    agent.table.values[:, 0] = 1.0
    seen = []
    agent.learn(400_000, lambda agent: seen.append((agent.steps, agent.metrics["train/td_error"])))
    before, multiplier = 0, schedule_from(schedule)
    for steps, error in seen:
        share = np.mean([multiplier(steps / 400_000) for steps in np.linspace(before, steps, 50)])
        assert error == pytest.approx(0.9 * share * (ACTIONS - 1) / ACTIONS, abs=0.015)
        before = steps
    assert len(seen) > 20
    assert agent.metrics["rollout/exploration_rate"] == pytest.approx(0.9 * multiplier(1.0))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_learning_follows_its_schedule(schedule):
    """Each step makes some value smaller by its rate, so that the product of all values is that of all (1 - rate)."""
    total, rate = 400_000, 2.5e-4
    config = {"learning_rate": rate, "learning_rate_schedule": schedule, "initial_value": 1.0}
    agent = install(made("q-learning", **config), {**params_of(one_way(0.0, True)), "allowed": np.tile([0, 1, 0], 6)})
    agent.learn(total)
    multiplier = schedule_from(schedule)
    expected = total * np.mean([np.log1p(-rate * multiplier(share)) for share in np.linspace(0, 1, 10_000)])
    assert np.log(agent.table.values[:, 1].astype(np.float64)).sum() == pytest.approx(expected, rel=0.01)
    assert (agent.table.values[:, [0, 2]] == 1.0).all()


@pytest.mark.parametrize("runtime", ["serial", "threads"])
@pytest.mark.parametrize("way", slow_but({"epsilon_greedy"}, ["epsilon_greedy", "softmax", "ucb"]))
def test_masks_are_never_violated(way, runtime):
    """A mark on a taken cell costs 1 and would be learnt: the value of every such move is still 0."""
    workers = {"workers": 2} if runtime == "threads" else {}
    agent = QLearning("TicTacToe-v1", exploration=way, runtime=runtime, seed=2, **workers).learn(1_000_000)
    boards = np.array(np.unravel_index(np.arange(3**9), (3,) * 9)).T
    values = agent.table.look_up(np.arange(3**9))[:, 0]
    assert (values[boards != 0] == 0).all()
    assert (values[boards == 0] != 0).sum() > 5000
    open_boards = boards[(boards == 0).any(axis=1)]
    for deterministic in (True, False):
        moves, _ = agent.predict(open_boards, deterministic=deterministic, action_masks=open_boards == 0)
        assert (open_boards[np.arange(len(open_boards)), moves] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["softmax", "ucb"])
@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        ("q-learning", "float32"),
        ("q-learning", "float64"),
        ("expected-sarsa", "float32"),
    ],
)
def test_masks_hold_for_every_way(case, dtype, way):
    model = model_of(1)
    agent = trained(case, exploration=way, dtype=dtype, exploration_schedule="linear")  # to 0
    assert (table_of(agent)[:, ~model.legal] == 0).all()
    assert (table_of(agent)[:, model.legal] != 0).all()
    states = np.repeat(np.arange(STATES), 1000)
    for deterministic in (True, False):
        actions, _ = agent.predict(states, deterministic=deterministic, action_masks=model.legal[states])
        assert model.legal[states, actions].all()


def test_ucb_tries_every_action_before_any_again():
    """Two states in turn, so that the last visit of one is learnt from before the next: its actions in any order."""
    params = {"first": np.where(np.arange(18) < 3, 1, 0), "first_reward": np.arange(18)}
    agent = install(made("q-learning", 1, exploration="ucb"), params)
    watch = Watch(agent, 0.5, 0.5, GAMMA)
    taken = {state: [] for state in range(STATES)}
    for _ in range(2 * ACTIONS + 1):
        (step,) = watch.round(np.ones((STATES, ACTIONS), bool))
        taken[step.state].append(step.action)
    for state in (0, 1):
        assert sorted(taken[state][:ACTIONS]) == [0, 1, 2]
    visits = agent.table.arrays.rows["visits"]
    assert visits.tolist() == [np.bincount(taken[state], minlength=ACTIONS).tolist() for state in range(STATES)]


@pytest.mark.parametrize(
    ("case", "storage"),
    [
        ("double-q-learning", "dense"),
        ("q-lambda", "dense"),
        pytest.param("q-lambda", "sparse", marks=pytest.mark.slow),
    ],
)
def test_threads_learn_the_same_into_one_table(case, storage):
    """Two threads, 4M steps with a rate that falls: within 0.03 of value iteration."""
    model = model_of(0)
    config = {"learning_rate": 0.5, "learning_rate_schedule": "exponential(end=1e-4)", "storage": storage}
    agent = install(
        made(case, 8, runtime="threads", workers=2, exploration_schedule="linear(end=0.5)", **config), params_of(model)
    ).learn(4_000_000)
    assert len(agent.learner.current) == 2
    exact = value_iteration(model, GAMMA).action_values[model.legal]
    np.testing.assert_allclose(table_of(agent).mean(axis=0)[model.legal], exact, atol=0.03)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trace_decay": 1.5}, "trace_decay must be from 0 to 1, got 1.5"),
        ({"trace_decay": -0.1}, "trace_decay must be from 0 to 1, got -0.1"),
        ({"n_step": 3}, "there is no setting 'n_step'"),
        ({"traces": "dutch"}, "Invalid enum value 'dutch' - at traces"),
        ({"trace_length": 3}, "there is no setting 'trace_length'.*trace_decay"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        made("q-lambda", **settings)


def test_traces_are_only_of_q_lambda():
    with pytest.raises(ValueError, match="there is no setting 'trace_decay'"):
        made("sarsa", trace_decay=0.9)
