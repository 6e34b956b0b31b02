"""What every algorithm keeps: exact resumes, files that give the same agent back, guards and signals."""

import os
import signal
from math import inf, nan

import fragile
import numpy as np
import pytest
from choosing import slow_but
from velocirl.training.off_policy_agent import OffPolicyAgent

import velocirl
from velocirl import Box, Checkpoint, Discrete, Environment, NumericalError
from velocirl.algorithms import load_algorithms
from velocirl.runs import memory_files
from velocirl.runs.checkpoints import Checkpoints
from velocirl.tabular.agent import TabularAgent
from velocirl.training.agent import ALGORITHMS, Agent

load_algorithms()

REMEMBERING = {"num_envs": 8, "learning_starts": 100, "train_every": 16, "batch_size": 16, "buffer_size": 1000,
               "hidden": (16, 16), "threads": 1}  # fmt: skip
TABULAR = {"num_envs": 8}
COLLECTING = {"num_envs": 8, "horizon": 32, "hidden": (16, 16), "threads": 1}
SMALL = {
    "ppo": {**COLLECTING, "minibatch_size": 64, "epochs": 2},
    "a2c": COLLECTING,
    "dqn": {**REMEMBERING, "n_step": 3, "priority": "proportional"},
    "sac": REMEMBERING,
    "td3": {**REMEMBERING, "noise_correlation": 0.5},
    "q-learning": TABULAR,
    "double-q-learning": {**TABULAR, "storage": "sparse"},
    "sarsa": {**TABULAR, "n_step": 3},
    "expected-sarsa": {**TABULAR, "exploration": "ucb"},
    "q-lambda": {**TABULAR, "storage": "sparse"},
}
TABLES = {name for name, kind in ALGORITHMS.items() if issubclass(kind, TabularAgent)}
ENVIRONMENTS = {"sac": "Pendulum-v1", "td3": "Pendulum-v1", **dict.fromkeys(TABLES, "TicTacToe-v1")}
TOTAL = dict.fromkeys(ALGORITHMS, 4096) | dict.fromkeys(TABLES, 65_536)  # several iterations of each
CONTINUOUS = Environment(
    "FragileContinuous-v0", state=fragile.State, params=fragile.Params, observation=Box(-inf, inf, (1,)),
    action=Box(-1.0, 1.0, (1,)), max_steps=1000, reset=fragile.reset, step=fragile.step, observe=fragile.observe,
)  # fmt: skip


def observe_count(state, params, observation):
    observation[0] = int(state.count)


COUNTED = Environment(
    "FragileCounted-v0", state=fragile.State, params=fragile.Params, observation=Discrete(5000), action=Discrete(2),
    max_steps=5000, reset=fragile.reset, step=fragile.step, observe=observe_count,
)  # fmt: skip
FRAGILE = {"sac": CONTINUOUS, "td3": CONTINUOUS, **dict.fromkeys(TABLES, COUNTED)}

pytestmark = pytest.mark.parametrize("name", slow_but({"ppo", "q-learning"}, sorted(ALGORITHMS)))


def made(name, env=None, **changes):
    return ALGORITHMS[name](env or ENVIRONMENTS.get(name, "CartPole-v1"), **{**SMALL[name], "seed": 5, **changes})


def fleet_of(agent):
    """The copies that it trains in."""
    machine = agent.machine
    if hasattr(machine, "collector"):
        return machine.collector.fleet
    return machine._envs if isinstance(agent, TabularAgent) else machine.envs


def stop_at(steps):
    return lambda agent: agent.steps < steps


def assert_same(one, other):
    one, other = one.state(), other.state()
    assert one.document == other.document
    assert one.arrays.keys() == other.arrays.keys()
    for key, array in one.arrays.items():
        assert_equal(array, other.arrays[key], key)


def assert_equal(one, other, key):
    """Bit for bit, but for what lies between the fields of records."""
    for field in one.dtype.names or (...,):
        assert one[field].tobytes() == other[field].tobytes(), f"{key} {field}"


def some_observations(agent):
    """50 of them; those of a box may lie anywhere."""
    space = agent.source.observation_space
    if isinstance(space, Box):
        return np.random.default_rng(0).normal(size=(50, *space.shape)).astype(np.float32)
    space.seed(0)
    return np.stack([space.sample() for _ in range(50)])


def remembers(agent):
    return isinstance(agent, OffPolicyAgent)


@pytest.fixture(scope="module")
def whole():
    """An agent of each algorithm that was trained without a break, once."""
    agents = {}

    def trained(name):
        if name not in agents:
            agents[name] = made(name).learn(TOTAL[name])
        return agents[name]

    return trained


def test_the_seed_decides_all(name, whole):
    assert_same(made(name).learn(TOTAL[name]), whole(name))
    assert not np.array_equal(made(name, seed=6).learn(TOTAL[name]).parameters, whole(name).parameters)


def test_something_is_learnt_from(name, whole):
    assert whole(name).metrics["train/n_updates"] > 0
    assert not np.array_equal(whole(name).parameters, made(name).parameters)


def test_going_on_from_a_file_is_going_on(name, whole, tmp_path):
    half = TOTAL[name] // 2
    agent = made(name).learn(TOTAL[name], stop_at(half))
    assert half <= agent.steps < TOTAL[name]
    again = Agent.load(agent.save(tmp_path / "agent"))
    assert_same(agent, again)
    assert_same(again.learn(), whole(name))


@pytest.mark.parametrize("large", [1, 2**40], ids=["segments", "one file"])
def test_going_on_from_a_checkpoint_is_going_on(name, whole, tmp_path, monkeypatch, large):
    monkeypatch.setattr(memory_files, "LARGE", large)
    made(name).learn(TOTAL[name], [Checkpoint(tmp_path, every=256), stop_at(TOTAL[name] // 2)])
    latest = Checkpoints(tmp_path).latest()
    assert latest.problems == ()
    assert (tmp_path / "memory").exists() == (remembers(whole(name)) and large == 1)
    again = Agent.from_state(latest.state)
    assert_same(again.learn(callbacks=Checkpoint(tmp_path, every=256)), whole(name))
    assert_same(Agent.load(max(tmp_path.glob("step_*"))), whole(name))


def test_a_saved_agent_acts_the_same(name, whole, tmp_path):
    agent = whole(name)
    observations = some_observations(agent)
    for memory in (True, False):
        again = Agent.load(agent.save(tmp_path / f"memory-{memory}", memory=memory))
        for deterministic in (True, False):
            rng = agent._acting.copy()
            expected = agent.predict(observations, deterministic=deterministic)[0]
            agent._acting[:] = rng
            np.testing.assert_array_equal(again.predict(observations, deterministic=deterministic)[0], expected)
        action = again.predict(observations[0], deterministic=True)[0]
        assert again.source.action_space.contains(action)


def test_a_file_without_a_memory_is_small_and_learns_on_with_an_empty_one(name, whole, tmp_path):
    agent = whole(name)
    paths = [agent.save(tmp_path / f"memory-{memory}", memory=memory) for memory in (True, False)]
    again = Agent.load(paths[1])
    if remembers(agent):
        assert paths[1].stat().st_size < paths[0].stat().st_size - 1000 * 24
        assert again.state().arrays["memory.counts"].tolist() == [0, 0, 0]
        assert_same(again, Agent.load(paths[0], memory=False))
    else:
        assert paths[0].read_bytes() == paths[1].read_bytes()
    again.learn(256)
    assert again.steps >= TOTAL[name] + 256
    assert np.isfinite(again.parameters).all()


def test_a_state_is_not_changed_by_training_on(name):
    agent = made(name).learn(1024)
    state = agent.state()
    before = {key: array.copy() for key, array in state.arrays.items()}
    agent.learn(1024)
    for key, array in before.items():
        assert_equal(array, state.arrays[key], key)


def test_the_best_model_is_kept_without_its_memory(name, tmp_path):
    agent = made(name)
    evaluating = velocirl.Evaluate(every=1024, episodes=2, directory=tmp_path)
    agent.learn(2048, evaluating)
    state = Checkpoints(tmp_path).best()
    assert len(state.arrays.get("memory.rows", ())) == 0
    assert (
        velocirl.evaluate(Agent.from_state(state), episodes=2, seed=0, deterministic=True).mean_return
        == evaluating.best
    )


def test_what_is_no_number_stops_it_and_leaves_the_last_checkpoint(name, tmp_path):
    agent = made(name, FRAGILE.get(name, fragile.fragile))
    agent.prepare()
    at = 2500 if name in TABLES else 150  # after more than an iteration
    fault = (at - 1) * agent.config.num_envs
    copies = fleet_of(agent).copies
    copies.params["at"][3], copies.params["reward"][3] = at, nan
    with pytest.raises(
        NumericalError, match=rf"a reward of the environment is not finite: copy 3, step {fault} of the"
    ):
        agent.learn(10 * TOTAL[name], Checkpoint(tmp_path, every=1))
    assert np.isfinite(agent.parameters).all()
    latest = Checkpoints(tmp_path).latest()
    assert 0 < latest.step <= fault
    for key, array in latest.state.arrays.items():
        for field in () if key.startswith("fleet.") else array.dtype.names or (...,):
            assert array[field].dtype.kind != "f" or np.isfinite(array[field]).all(), f"{key} {field}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends_and_training_can_go_on(name, whole, tmp_path, number):
    agent = made(name)

    def interrupt(agent):
        if agent.steps >= TOTAL[name] // 2:
            os.kill(os.getpid(), number)

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        agent.learn(TOTAL[name], [interrupt, Checkpoint(tmp_path)])
    latest = Checkpoints(tmp_path).latest()
    assert TOTAL[name] // 2 <= latest.step == agent.steps < TOTAL[name]
    assert_same(Agent.from_state(latest.state).learn(), whole(name))


def test_there_is_a_small_configuration_of_every_algorithm(name):
    assert name in SMALL
