"""Tables learnt in Gymnasium's own environments: every kind of space, ends, masks, faults, and going on."""

import numpy as np
import pytest
import wanderer
from wanderer import MOTOR, NOT_A_NUMBER, OUTSIDE, Wanderer

from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.engine.compiler import compiling, units
from velocirl.program.faults import NumericalError
from velocirl.training.evaluation import evaluate

STEPS = 3000


known = pytest.fixture(autouse=True)(wanderer.register)


def wander(num_envs=1, params=None, **config):
    return QLearning("gym:Wanderer-v0", seed=3, num_envs=num_envs, params=params, gamma=0.9, **config)


def by_hand(log, num_envs, rate=0.1, gamma=0.9):
    """Q-learning as a textbook has it, over steps that were told: all of a round are valued before any is learnt."""
    table = np.zeros((48, 3))
    for first in range(0, len(log), num_envs):
        steps, targets = log[first : first + num_envs], []
        for _, _, reward, then, terminated, _, legal in steps:
            ahead = 0.0 if terminated else table[then][legal != 0].max()
            targets.append(reward + gamma * ahead)
        for (state, action, *_), target in zip(steps, targets, strict=True):
            table[state, action + 1] += rate * (target - table[state, action + 1])
    return table


@pytest.mark.parametrize("masked", [0.0, 1.0])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_learns_what_a_textbook_would(num_envs, masked):
    agent = wander(num_envs, {"masked": masked}).learn(STEPS)
    log = Wanderer.log
    assert len(log) == STEPS == agent.steps
    ends = [(terminated, truncated) for *_, terminated, truncated, _ in log]
    assert all(ends.count(kind) > 10 for kind in ((True, False), (False, True), (True, True)))
    np.testing.assert_allclose(agent.table.values, by_hand(log, num_envs), atol=2e-5)


def test_sparse_is_dense():
    dense = wander(2).learn(STEPS)
    sparse = wander(2, storage="sparse").learn(STEPS)
    met = np.sort(sparse.table.keys)
    assert met.tolist() == list(range(48))
    np.testing.assert_array_equal(sparse.table.look_up(met), dense.table.look_up(met))


def test_double_precision_is_closer_to_the_textbook():
    agent = wander(dtype="float64").learn(STEPS)
    np.testing.assert_allclose(agent.table.values, by_hand(Wanderer.log, 1), atol=1e-7)


def test_the_same_seed_is_the_same_table():
    first, again = wander(2).learn(500), wander(2).learn(500)
    other = QLearning("gym:Wanderer-v0", seed=4, num_envs=2, gamma=0.9).learn(500)
    np.testing.assert_array_equal(first.table.values, again.table.values)
    assert (first.table.values != other.table.values).any()


def test_episodes_are_reported():
    agent = wander(2).learn(500)
    rewards, totals = [0.0, 0.0], []
    for number, (_, _, reward, _, terminated, truncated, _) in enumerate(Wanderer.log):
        rewards[number % 2] += reward
        if terminated or truncated:
            totals.append(rewards[number % 2])
            rewards[number % 2] = 0.0
    assert list(agent.recent.returns) == totals[-100:]


def test_actions_are_those_of_the_space():
    agent = wander().learn(500)
    action, _ = agent.predict(Wanderer().reset(seed=0)[0], deterministic=True)
    assert action in Wanderer.action_space
    assert {step[1] for step in Wanderer.log} == {-1, 0, 1}
    for state in range(48):
        bits = [int(bit) for bit in f"{state % 16:04b}"]
        seen = {"floor": state // 16 - 1, "room": (np.array(bits[:2], np.int8), np.array(bits[2:]))}
        assert agent.predict(seen, deterministic=True)[0] == agent.table.values[state].argmax() - 1


@pytest.mark.parametrize(("mishap", "source"), [(NOT_A_NUMBER, "a reward"), (OUTSIDE, "an observation")])
def test_a_fault_is_named_and_stops(mishap, source):
    agent = wander(2, {"mishap": float(mishap), "at": 80.0})  # beyond the steps whose contract is checked
    with pytest.raises(NumericalError, match=rf"{source} of the environment.* copy 1, step {39 * 2} of the run"):
        agent.learn(500)
    assert len(Wanderer.log) == 80  # nothing is done after it


def test_an_environment_that_raises_is_named_and_can_be_gone_on_with():
    agent = wander(2, {"mishap": float(MOTOR), "at": 40.0}, n_step=2)
    with pytest.raises(OSError, match="the motor is stuck") as raised:
        agent.learn(500)
    assert raised.value.__notes__ == ["raised by copy 1 of Wanderer-v0"]
    begun, told = len(Wanderer.seeds), len(Wanderer.log)
    agent.learn(100)
    assert Wanderer.seeds[begun:][:2] == [None, None]
    assert len(Wanderer.log) == told + 100


def test_goes_on_with_new_episodes_and_the_same_streams(tmp_path):
    agent = wander(2, n_step=2).learn(500)
    path = agent.save(tmp_path / "agent")
    first_seeds = Wanderer.seeds[1:3]  # the first of all was that of the spaces
    tables = []
    for _ in range(2):
        Wanderer.seeds.clear()
        loaded = QLearning.load(path)
        np.testing.assert_array_equal(loaded.table.values, agent.table.values)
        loaded.learn(500)
        tables.append(loaded.table.values.copy())
        assert not set(Wanderer.seeds[1:3]) & {None, *first_seeds}
    np.testing.assert_array_equal(*tables)
    assert (tables[0] != agent.table.values).any()


def test_loaded_and_saved_at_once_keeps_its_streams(tmp_path):
    agent = wander().learn(300)
    loaded = QLearning.load(agent.save(tmp_path / "agent"))
    loaded.prepare()
    again = QLearning.load(loaded.save(tmp_path / "again"))
    np.testing.assert_array_equal(again.learn(300).table.values, loaded.learn(300).table.values)


def test_preparing_compiles_what_training_needs(monkeypatch):
    agent = wander(2)
    agent.prepare()
    monkeypatch.setattr(units, "_compile", None)
    monkeypatch.setattr(compiling, "_load", None)
    assert agent.learn(100).steps == 100


def test_a_table_needs_whole_numbers():
    with pytest.raises(ValueError, match=r"gym:CartPole-v1 are Box.*use DQN"):
        QLearning("gym:CartPole-v1", seed=0)


@pytest.mark.parametrize(
    ("environment", "params", "steps", "wanted"),
    [("gym:FrozenLake-v1", {"is_slippery": 0.0}, 20_000, 1.0), ("gym:CliffWalking-v1", None, 20_000, -13.0)],
)
def test_solves_grid_worlds(environment, params, steps, wanted):
    agent = QLearning(environment, seed=0, num_envs=2, params=params).learn(steps)
    found = evaluate(agent, episodes=5, seed=1)
    assert found.returns.tolist() == [wanted] * 5


@pytest.mark.slow
def test_solves_taxi():
    agent = QLearning("gym:Taxi-v4", seed=0, num_envs=4, learning_rate=0.3).learn(300_000)
    assert evaluate(agent, episodes=500, seed=1).mean_return > 7


@pytest.mark.slow
def test_plays_blackjack_as_well_as_can_be():
    """The best that can be done is about -0.045."""
    agent = QLearning(
        "gym:Blackjack-v1", seed=0, num_envs=8, gamma=1.0, learning_rate_schedule="linear(end=0.01)",
        exploration_schedule="linear(end=0.3)",
    ).learn(300_000)  # fmt: skip
    assert evaluate(agent, episodes=30_000, seed=1).mean_return > -0.06
