"""What runs the rounds of tabular algorithms: threads that share a table and their work, growth, and guards."""

from math import inf, nan

import numpy as np
import pytest
import tic_tac_toe_oracle as oracle

from velocirl import Discrete, Environment, MultiDiscrete, NumericalError, QLearning, float32, int32, random, record
from velocirl.tabular.loop import ROUNDS, Pace
from velocirl.tabular.tables.table import FIRST_ROWS, NOBODY

SIDE = 512


@record
class State:
    x: int32
    y: int32
    count: int32
    done: float32


@record
class Params:
    work: int32 = 0  # additions in a step
    at: int32 = -1  # the step of which this copy's number goes wrong
    reward: float32 = 0
    outside: int32 = 0


def reset(state, params, rng):
    state.x = random.integer(rng, 0, SIDE)
    state.y = random.integer(rng, 0, SIDE)
    state.count = 0
    state.done = 0.0


def step(state, params, action, rng):
    state.x = (state.x + (action == 0) - (action == 1)) % SIDE
    state.y = (state.y + (action == 2) - (action == 3)) % SIDE
    state.count += 1
    total = state.done
    for _ in range(params.work):
        total = total * 0.5 + 1.0
    state.done = total
    return params.reward if state.count == params.at else 1.0, False


def observe(state, params, observation):
    observation[0] = state.x
    observation[1] = params.outside if state.count == params.at and params.outside != 0 else state.y


roam = Environment(
    "Roam-v0", state=State, params=Params, observation=MultiDiscrete([SIDE, SIDE]), action=Discrete(4),
    max_steps=20_000, reset=reset, step=step, observe=observe,
)  # fmt: skip
THREADS = {"runtime": "threads", "workers": 2, "num_envs": 32, "seed": 0}


def prepared(**settings):
    agent = QLearning(roam, **{"num_envs": 32, "seed": 0, **settings})
    agent.prepare()
    return agent


def copies(agent):
    return agent.learner.fleet.copies


def numbers(agent):
    """The numbers of the states that the copies see."""
    seen = np.asarray(copies(agent).observation).view(np.int64).reshape(-1, 2)
    return seen[:, 0] * SIDE + seen[:, 1]


def places(agent):
    return np.concatenate([current.place for current in agent.learner.current]).astype(np.int64)


def test_workers_share_the_rounds_of_a_pace():
    pace = Pace(100, 10, 5, 0.5, -0.001, 1.0, -0.01, 0.9)
    shared = pace.shared_by(4)
    assert shared.rounds == 400
    assert (shared.step, shared.rate, shared.gamma) == (0.5, 1.0, 0.9)
    for name in ("step", "rate"):  # at the end it is the same
        ends = [getattr(one, name) + one.rounds * getattr(one, f"{name}_change") for one in (pace, shared)]
        assert ends[0] == pytest.approx(ends[1])


@pytest.mark.parametrize(
    "settings", [{}, pytest.param({"storage": "sparse"}, marks=pytest.mark.slow)], ids=["dense", "sparse"]
)
def test_threads_learn_as_well_as_one_core(settings):
    everything = np.array([oracle.cells_of(code) for code in range(oracle.CODES)])
    model, _, plan = oracle.exact()
    best = model.start_value(plan.values)
    for runtime in ({}, {"runtime": "threads", "workers": 2}, {"runtime": "threads", "workers": 4}):
        agent = QLearning("TicTacToe-v1", seed=0, gamma=1.0, learning_rate=0.1, **runtime, **settings)
        agent.learn(4_000_000)
        policy = agent.predict(everything, deterministic=True, action_masks=everything == 0)[0]
        assert oracle.value_of_policy(policy) >= 0.99 * best, runtime
        assert oracle.outcome_of_policy(policy)[2] <= 0.01


def test_every_round_is_taken_once():
    agent = prepared(**THREADS)
    agent.learn(50_000)
    assert agent.steps == 50_016  # the next multiple of 32
    assert copies(agent).state["count"].sum() == agent.steps


def test_a_faster_thread_takes_more_rounds():
    """The copies of the first thread have twenty times as much to compute; all rounds are taken all the same."""
    agent = prepared(**THREADS)
    copies(agent).params["work"] = np.where(np.arange(32) < 16, 4000, 200)
    agent.learn(8 * 16_384)
    count = np.asarray(copies(agent).state["count"])
    slow, fast = int(count[0]), int(count[16])
    assert (count == np.where(np.arange(32) < 16, slow, fast)).all()
    assert slow + fast == 2 * 8 * 16_384 // 32
    assert fast > 2 * slow > 0
    last = [int(current.tally[ROUNDS]) for current in agent.learner.current]
    assert sum(last) == 2 * 16_384 // 32


def test_one_core_takes_rounds_of_all():
    agent = prepared()
    agent.learn(16_384)
    assert (np.asarray(copies(agent).state["count"]) == 512).all()


@pytest.mark.parametrize("settings", [{}, THREADS], ids=["one core", "threads"])
def test_a_sparse_table_grows_while_it_is_learnt_into(settings, tmp_path):
    agent = prepared(**{**settings, "num_envs": 512, "storage": "sparse"})
    agent.learn(400_000)
    keys = agent.table.keys
    assert len(keys) > 8 * FIRST_ROWS
    used = keys[keys != NOBODY]
    assert len(np.unique(used)) == len(used) > 0.99 * len(keys)
    np.testing.assert_array_equal(keys[places(agent)], numbers(agent))
    np.testing.assert_array_equal(agent.table.places(used), np.flatnonzero(keys != NOBODY))
    assert (agent.table.values[keys != NOBODY] > 0).any(axis=1).mean() > 0.95  # a few were met but not left yet
    assert (agent.table.values[keys == NOBODY] == 0).all()
    again = QLearning.load(agent.save(tmp_path / "roaming"), env=roam)
    again.prepare()
    np.testing.assert_array_equal(again.table.keys[places(again)], numbers(agent))
    again.learn(100_000)
    np.testing.assert_array_equal(again.table.keys[places(again)], numbers(again))


def test_sparse_is_dense_whatever_the_growth():
    """On one core: the same states are met and the same is learnt of them."""
    dense, sparse = (prepared(storage=storage).learn(200_000) for storage in ("dense", "sparse"))
    assert len(sparse.table) > FIRST_ROWS
    everywhere = np.arange(SIDE * SIDE)
    found, expected = sparse.table.look_up(everywhere), dense.table.look_up(everywhere)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("wrong", [nan, inf, -inf])
def test_a_reward_that_is_no_number_is_named(wrong):
    agent = prepared()
    copies(agent).params["at"][5], copies(agent).params["reward"][5] = 700, wrong
    with pytest.raises(NumericalError) as stopped:
        agent.learn(100_000)
    assert "a reward of the environment is not finite: copy 5, step 22368 of the run" in str(stopped.value)  # 699 * 32
    assert agent.steps == 16_384  # what came before


def test_a_state_that_is_not_in_the_space_is_named():
    for outside in (SIDE, -1, 2**31 - 1):
        agent = prepared()
        copies(agent).params["at"][31], copies(agent).params["outside"][31] = 700, outside
        with pytest.raises(NumericalError) as stopped:
            agent.learn(100_000)
        assert "an observation of the environment is outside of its space" in str(stopped.value)
        assert "copy 31, step 22368 of the run" in str(stopped.value)


def test_the_copy_of_another_thread_is_named():
    agent = prepared(**THREADS)
    copies(agent).params["at"][20], copies(agent).params["reward"][20] = 700, nan
    with pytest.raises(NumericalError, match="a reward of the environment is not finite: copy 20, step") as stopped:
        agent.learn(100_000)
    assert 0 <= int(str(stopped.value).split("step ")[1].split()[0]) < 100_000


def test_the_step_is_right_after_the_table_has_grown():
    agent = prepared(storage="sparse")
    copies(agent).params["at"][5], copies(agent).params["reward"][5] = 400, nan
    with pytest.raises(NumericalError, match=rf"copy 5, step {399 * 32} of the run"):
        agent.learn(100_000)
    assert len(agent.table) > FIRST_ROWS
    assert np.isfinite(agent.table.values).all()  # the step itself left nothing behind


@pytest.mark.parametrize("name", ["current.place", "policy.rng", "fleet.action", "fleet.state"])
def test_what_does_not_fit_the_copies_is_refused(name):
    state = prepared().learn(1000).state()
    state.arrays[name] = state.arrays[name][:-1]
    with pytest.raises(ValueError, match=name.split(".")[1]):
        QLearning.from_state(state, roam).prepare()


@pytest.mark.parametrize("name", ["current.place", "current.window", "fleet.action"])
def test_what_points_outside_of_the_table_is_refused(name):
    state = prepared(n_step=3).learn(1000).state()
    array = state.arrays[name] = state.arrays[name].copy()
    if name == "current.window":
        array["place"][2, 1] = 2**44
    else:
        array[2] = 2**44 if name == "current.place" else 77
    with pytest.raises(ValueError, match=rf"{name}\S* is \d+ at \[2.*\]; it must be from 0 to"):
        QLearning.from_state(state, roam)


@pytest.mark.parametrize("settings", [{"n_step": 3}, THREADS], ids=["three steps", "threads"])
def test_copies_find_their_rows_again_when_an_earlier_table_comes_back(settings):
    agent = prepared(storage="sparse", **settings).learn(20_000)
    earlier = agent.policy_arrays()
    order = np.random.default_rng(0).permutation(len(earlier["table.values"]))
    agent.learn(20_000)
    agent.load_policy_arrays({name: array[order] for name, array in earlier.items()})
    agent.learn(20_000)
    np.testing.assert_array_equal(agent.table.keys[places(agent)], numbers(agent))


def test_threads_are_for_compiled_environments():
    with pytest.raises(ValueError, match='steps in Python, which threads would share: use runtime="processes"'):
        QLearning("gym:FrozenLake-v1", runtime="threads", workers=2).learn(100)
