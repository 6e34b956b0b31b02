"""Threads change no result: the same seed and shares give the same parameters bit for bit, whoever does the work."""

import numpy as np
import pytest
from choosing import slow_but

import velocirl
from velocirl.engine.targets import team
from velocirl.training.settings.parallelism import FREE_ROWS, MAX_ITEMS, shares_for

SMALL = {"num_envs": 7, "hidden": (16,), "seed": 3}
PPO = {**SMALL, "num_envs": 40, "horizon": 16, "minibatch_size": 160, "shares": 5, "normalise_observations": True,
       "normalise_rewards": True}  # fmt: skip
REPLAY = {**SMALL, "batch_size": 24, "learning_starts": 100, "buffer_size": 1000, "shares": 4}
CASES = {
    "ppo": (velocirl.PPO, "Pendulum-v1", PPO, 3_000),
    "ppo by environments": (velocirl.PPO, "Pendulum-v1", {**PPO, "minibatches": "environments"}, 3_000),
    "ppo in gymnasium": (velocirl.PPO, "gym:CartPole-v1", {**PPO, "num_envs": 6, "minibatch_size": 48}, 300),
    "a2c": (velocirl.A2C, "CartPole-v1", {**SMALL, "num_envs": 40, "shares": 5}, 3_000),
    "dqn with priorities": (velocirl.DQN, "CartPole-v1", {**REPLAY, "priority": "proportional"}, 1_000),
    "sac": (velocirl.SAC, "Pendulum-v1", REPLAY, 400),
    "td3": (velocirl.TD3, "Pendulum-v1", REPLAY, 400),
    "ppo-lagrangian": (
        velocirl.PPOLagrangian,
        "ChemicalReactor-v0",
        {**PPO, "cost_limits": {"temperature": 5.0}},
        2_000,
    ),
}


def trained(case, threads):
    kind, environment, settings, steps = CASES[case]
    agent = kind(environment, **settings, threads=threads, device="cpu").learn(steps)
    assert agent.config.threads == threads
    return {name: np.array(array) for name, array in agent.learner.state().items()} | {"own": agent.parameters.copy()}


@pytest.mark.parametrize("case", slow_but(CASES.keys() - {"ppo-lagrangian"}, CASES))
def test_any_number_of_threads_learns_the_same(monkeypatch, case):
    expected = trained(case, 1)
    # All three threads work all the time, which the tuner would not let them for so little.
    monkeypatch.setattr(team, "ladder_of", lambda threads: [threads] * 2)
    other = trained(case, 3)
    assert list(other) == list(expected)
    for name, array in expected.items():
        for field in array.dtype.names or (...,):  # bytes between fields mean nothing
            assert other[name][field].tobytes() == array[field].tobytes(), name


@pytest.mark.parametrize("cores", [1, 2, 3, 16, 64])
def test_shares_follow_the_size_of_an_update(cores):
    assert shares_for(1, 10**6, cores) == 1
    assert shares_for(128, 100, cores) == 1  # next to nothing to do
    assert shares_for(128, 1_000, cores) <= 2
    assert shares_for(128, 10**6, cores) == min(4, 1 << (cores - 1).bit_length())
    assert shares_for(FREE_ROWS * 8, 1_000, cores) == {16: 16, 64: 32}.get(cores, 8)
    assert shares_for(2**20, 1_000, cores) == MAX_ITEMS
    assert shares_for(2**20, 10**9, 4) == 4  # gradients of more would fill the memory


def test_a_saved_agent_keeps_its_shares_on_other_cores(tmp_path, monkeypatch):
    agent = velocirl.PPO("CartPole-v1", seed=0, num_envs=64, minibatch_size=512).learn(5_000)
    shares = agent.config.shares
    path = agent.save(tmp_path / "agent")
    monkeypatch.setattr("velocirl.training.settings.parallelism.available_cores", lambda: 16)
    loaded = velocirl.load(path)
    assert loaded.config.shares == shares
    agent.learn(5_000)
    loaded.learn(5_000)
    assert loaded.parameters.tobytes() == agent.parameters.tobytes()
