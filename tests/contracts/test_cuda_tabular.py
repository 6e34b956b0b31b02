"""Tables that are learnt on a GPU: as far as updates one after another, the same quality, resumed runs, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from choosing import on_cuda

import velocirl
from velocirl import (
    SARSA,
    Discrete,
    DoubleQLearning,
    Environment,
    ExpectedSARSA,
    NumericalError,
    QLearning,
    float32,
    int32,
    record,
)
from velocirl.training.agent import Agent
from velocirl.training.persistence import Goal

pytestmark = on_cuda()

RATE, GAMMA = 0.1, 0.9


@record
class State:
    at: int32


@record
class Params:
    reward: float32 = 1.0


def reset(state, params, rng):
    state.at = 0


def step(state, params, action, rng):
    state.at += 1
    return params.reward, state.at >= 3


def observe(state, params, observation):
    observation[0] = min(state.at, 3)


CORRIDOR = Environment(
    "CUDACorridor-v0", state=State, params=Params, observation=Discrete(4), action=Discrete(1), reset=reset, step=step,
    observe=observe, report=("at",),
)  # fmt: skip
ENDLESS = Environment(
    "CUDAEndless-v0", state=State, params=Params, observation=Discrete(4), action=Discrete(1), max_steps=5, reset=reset,
    step=lambda state, params, action, rng: (params.reward, False), observe=observe,
)  # fmt: skip


def rounds_of(agent, rounds):
    agent.prepare()
    agent.goal = Goal(0, rounds * agent.num_envs)
    agent.learner.run(agent.pace()._replace(rounds=rounds), 0)
    return agent


@pytest.mark.parametrize("copies", [1, 300, 50_000])
def test_every_copy_counts_as_one_update_after_another(copies):
    config = {"num_envs": copies, "learning_rate": RATE, "gamma": GAMMA, "runtime": "cuda", "dtype": "float64"}
    agent = rounds_of(QLearning(CORRIDOR, **config), 3)
    share = 1 - (1 - RATE) ** copies
    # All copies walk together: the first round values state 0, the second 1, the third 2, each by all of them.
    np.testing.assert_allclose(agent.parameters[:, 0], [share, share, share, 0.0], rtol=1e-6)


def test_copies_with_different_targets_move_a_value_to_their_mean():
    copies = 64
    agent = QLearning(CORRIDOR, num_envs=copies, learning_rate=RATE, gamma=GAMMA, runtime="cuda", dtype="float64")
    agent.prepare()
    rewards = np.linspace(-1.0, 3.0, copies, dtype=np.float32)
    params = agent.learner._copies.params.copy_to_host()
    params["reward"] = rewards
    agent.learner._copies.params.copy_to_device(params)
    rounds_of(agent, 1)
    assert agent.parameters[0, 0] == pytest.approx((1 - (1 - RATE) ** copies) * rewards.mean(), rel=1e-6)


def test_an_episode_that_is_cut_short_goes_on_in_value():
    agent = QLearning(ENDLESS, num_envs=1024, gamma=GAMMA, runtime="cuda").learn(1024 * 500)
    assert agent.parameters[0, 0] == pytest.approx(1 / (1 - GAMMA), rel=1e-3)


@pytest.mark.parametrize("kind", [QLearning, DoubleQLearning, SARSA, ExpectedSARSA])
def test_the_quality_is_that_of_the_serial_runtime(kind):
    settings = {"gamma": 1.0, "learning_rate": 0.1, "learning_rate_schedule": "linear", "seed": 0}
    agent = kind("TicTacToe-v1", runtime="cuda", **settings).learn(200_000_000)
    serial = kind("TicTacToe-v1", **settings).learn(20_000_000)
    returns = [velocirl.evaluate(one, episodes=4000, seed=1).mean_return for one in (agent, serial)]
    assert returns[0] > returns[1] - 0.02
    assert returns[0] > 0.93


@pytest.mark.parametrize("way", ["softmax", "ucb"])
def test_other_ways_to_explore(way):
    # By confidence all copies in a state choose alike, and a large fleet knows too soon what it has seen once.
    copies = 64 if way == "ucb" else None
    agent = QLearning("CliffWalking-v1", runtime="cuda", num_envs=copies, exploration=way, exploration_rate=2.0, seed=0)
    agent.learn(5_000_000 if way == "ucb" else 50_000_000)
    assert velocirl.evaluate(agent, episodes=100, seed=1).mean_return == -13.0
    if way == "ucb":
        agent.learner.settle()
        assert agent.table.arrays.rows["visits"].sum(dtype=np.int64) == agent.steps


def test_what_is_illegal_is_never_done():
    agent = QLearning("TicTacToe-v1", runtime="cuda", seed=0).learn(20_000_000)
    copies = agent.learner._copies
    mask, action = copies.mask.copy_to_host(), copies.action.copy_to_host()
    assert mask[np.arange(len(action)), action].all()


def test_a_saved_agent_goes_on_and_acts_the_same_elsewhere(tmp_path):
    agent = QLearning("FrozenLake-v1", runtime="cuda", num_envs=4096, seed=0).learn(5_000_000)
    again = Agent.load(agent.save(tmp_path / "agent"))
    assert again.state().arrays.keys() == agent.state().arrays.keys()
    for name, array in agent.state().arrays.items():
        assert array.tobytes() == again.state().arrays[name].tobytes(), name
    steps = again.steps
    again.learn(1_000_000)
    assert again.steps >= steps + 1_000_000
    with pytest.raises(ValueError, match="with as many copies as it had: leave num_envs out"):
        Agent.load(tmp_path / "agent", runtime="serial", num_envs=64)
    elsewhere = Agent.load(tmp_path / "agent", runtime="serial")
    np.testing.assert_array_equal(elsewhere.parameters, agent.parameters)


def test_physics_is_drawn_and_set_on_the_way_and_reported(tmp_path):
    params = {"reward": velocirl.uniform(5, 15)}
    agent = QLearning(CORRIDOR, runtime="cuda", num_envs=256, seed=0, params=params).learn(100_000)
    drawn = agent.arrays()["fleet.params"]["reward"]
    assert ((drawn >= 5) & (drawn <= 15)).all()
    assert agent.metrics["episode/at"] == agent.metrics["rollout/ep_len_mean"] == 3
    agent.set_params(reward=2.0)
    agent.learn(100_000)
    assert agent.recent.returns[-1] == 6.0
    again = Agent.load(agent.save(tmp_path / "agent"), CORRIDOR)
    assert again.arrays()["fleet.params"].tobytes() == agent.arrays()["fleet.params"].tobytes()


def test_what_is_no_number_stops_it():
    agent = QLearning(CORRIDOR, num_envs=256, runtime="cuda")
    agent.prepare()
    params = agent.learner._copies.params.copy_to_host()
    params["reward"][17] = np.nan
    agent.learner._copies.params.copy_to_device(params)
    with pytest.raises(NumericalError, match="a reward of the environment is not finite: copy 17"):
        agent.learn(10_000)


def test_what_a_gpu_cannot_do_is_refused():
    with pytest.raises(ValueError, match="dense"):
        QLearning("FrozenLake-v1", runtime="cuda", storage="sparse").learn(100)
    with pytest.raises(ValueError, match="one step at a time"):
        QLearning("FrozenLake-v1", runtime="cuda", n_step=3).learn(100)
    with pytest.raises(ValueError, match="one step at a time"):
        velocirl.QLambda("FrozenLake-v1", runtime="cuda").learn(100)
