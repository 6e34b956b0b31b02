"""Whole batches from memories and data on several processes: as the block learner has them, which is its own oracle."""

import dataclasses

import numpy as np
import pytest
from gamble import gamble
from recorded import made_up
from threads_as_ranks import run_ranks

from velocirl import DQN, SAC, TD3BC, SACLagrangian
from velocirl.learners.making import make_offline, make_replay
from velocirl.program.reducing import ALONE
from velocirl.training.persistence import Goal

COMMON = {"seed": 3, "hidden": (8,), "max_grad_norm": 0.5, "threads": 1}
COPIES, ROUNDS, ITERATIONS = 7, 12, 2
REPLAY = {
    "sac": (SAC, "Pendulum-v1", {"num_envs": COPIES, "batch_size": 20, "train_every": 7, "learning_starts": 30}),
    "dqn": (DQN, "CartPole-v1", {"num_envs": COPIES, "batch_size": 16, "train_every": 5, "n_step": 3,
                                 "learning_starts": 20, "buffer_size": 150, "gradient_accumulation": 2}),
    "limits": (SACLagrangian, gamble, {"num_envs": COPIES, "batch_size": 20, "train_every": 7, "learning_starts": 30,
                                       "gamma": 0.5, "multiplier_episodes": 5, "cost_limits": {"heat": 0.5}}),
}  # fmt: skip
DEVICES = ["python", pytest.param("torch", marks=pytest.mark.slow)]
SIZES = [pytest.param(2, marks=pytest.mark.slow), 3]


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """Torch draws in the order in which the interpreter does, so that both can be compared."""
    if request.param == "torch":
        devices = pytest.importorskip("velocirl.backends.torch.device")
        monkeypatch.setattr(devices.TorchCPUDevice, "sequential", True)
    return "python" if request.param == "python" else "cpu"


def run(agent, make, pace, steps, reducer=ALONE):
    """What came of some iterations of so many steps."""
    agent.goal = Goal(0, 2000)
    learner = make(dataclasses.replace(agent.task(), reducer=reducer))
    reports = [learner.iterate(pace(agent), (k + 1) * steps) for k in range(ITERATIONS)]
    learner.settle()
    return reports, learner.state(), agent.policy.parameters.copy()


def assert_alike(ranks, expected):
    for (reports, state, parameters), (their_reports, their_state, theirs) in zip(ranks, expected, strict=True):
        np.testing.assert_allclose(parameters, theirs, rtol=1e-4, atol=1e-5)
        for name in ("learner.rng", "memory.rng", "learner.updates"):
            np.testing.assert_array_equal(state[name], their_state[name], err_msg=name)
        for one, other in zip(reports, their_reports, strict=True):
            assert (one.minibatches, one.lengths) == (other.minibatches, other.lengths)
            np.testing.assert_allclose(one.returns, other.returns, rtol=1e-4)
            np.testing.assert_allclose(one.gradient_norm, other.gradient_norm, rtol=1e-3)
            for name, mean in one.means.items():
                np.testing.assert_allclose(mean, other.means[name], rtol=1e-3, atol=1e-5, err_msg=name)
        if "policy.episodes" in state:
            np.testing.assert_array_equal(state["policy.episodes"], their_state["policy.episodes"])
            np.testing.assert_allclose(state["numbers.values"], their_state["numbers.values"], rtol=1e-4, atol=1e-5)
            assert state["numbers.values"][2] > 0.0  # the integral of the multiplier
    assert sum(report.minibatches for report in expected[0][0]) > 5


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", REPLAY)
def test_memories_are_learnt_from_as_in_blocks(name, size, device, one_torch_thread):
    kind, environment, settings = REPLAY[name]

    def agent(device):
        return kind(environment, **COMMON, **settings, device=device)

    def pace(agent):
        return agent.pace(ROUNDS)

    steps = ROUNDS * COPIES
    expected = run_ranks(
        size,
        lambda rank: run(agent("cpu"), lambda task: make_replay(task, ROUNDS, 100, native=True), pace, steps, rank),
    )
    found = run_ranks(
        size, lambda rank: run(agent(device), lambda task: make_replay(task, ROUNDS, 100), pace, steps, rank)
    )
    assert_alike(found, expected)
    for (_, state, _), (_, theirs, _) in zip(found, expected, strict=True):
        for field in ("reward", "ended", "action"):
            np.testing.assert_allclose(state["memory.rows"][:][field], theirs["memory.rows"][:][field], rtol=1e-4)
        np.testing.assert_array_equal(state["memory.counts"], theirs["memory.counts"])


@pytest.mark.parametrize("size", SIZES)
def test_data_is_learnt_from_as_in_blocks(size, device, one_torch_thread):
    data, other = made_up("Pendulum-v1"), SAC("Pendulum-v1", **COMMON)
    other.goal = Goal(0, 2000)

    def agent(device):
        return TD3BC(data=data, **COMMON, batch_size=10, device=device)

    def pace(agent):
        return other.pace(ROUNDS)._replace(max_grad_norm=agent.config.max_grad_norm)

    expected = run_ranks(
        size, lambda rank: run(agent("cpu"), lambda task: make_offline(task, 100, native=True), pace, ROUNDS, rank)
    )
    found = run_ranks(size, lambda rank: run(agent(device), lambda task: make_offline(task, 100), pace, ROUNDS, rank))
    assert_alike(found, expected)
