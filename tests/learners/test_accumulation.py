"""Gradients of several batches of a memory add up to that of one large batch, in every algorithm and learner."""

import numpy as np
import pytest

from velocirl import DQN, QRDQN, SAC, TD3, DiscreteSAC

SETTINGS = {"num_envs": 2, "learning_starts": 24, "train_every": 4, "buffer_size": 64, "hidden": (8, 8), "seed": 3}
CASES = {
    "dqn": (DQN, "CartPole-v1", {"priority": "proportional", "n_step": 2, "target_every": 3}),
    "qr-dqn": (QRDQN, "CartPole-v1", {}),
    "sac": (SAC, "Pendulum-v1", {}),
    "td3": (TD3, "Pendulum-v1", {}),
    "discrete-sac": (DiscreteSAC, "CartPole-v1", {}),
}
LARGE, SMALL = {"batch_size": 24}, {"batch_size": 8, "gradient_accumulation": 3}
STEPS = 48


def trained(name, **settings):
    kind, environment, own = CASES[name]
    agent = kind(environment, **{**SETTINGS, **own, "learning_rate": 0.003, "activation": "tanh", **settings})
    first = agent.parameters.copy()
    agent.learn(STEPS)
    assert np.abs(agent.parameters - first).max() > 1e-3
    return agent


def assert_alike(agent, other):
    arrays, others = agent.arrays(), other.arrays()
    for name in arrays:
        if name.endswith((".parameters", ".moments", "numbers.values", "memory.priorities")):
            np.testing.assert_allclose(others[name], arrays[name], atol=1e-5, err_msg=name)
    assert other.metrics["train/n_updates"] == agent.metrics["train/n_updates"]
    losses = [name for name in agent.metrics if "loss" in name]
    assert losses
    for name in losses:
        assert other.metrics[name] == pytest.approx(agent.metrics[name], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_parts_of_a_batch_are_as_the_batch(name):
    assert_alike(trained(name, device="python", **LARGE), trained(name, device="python", **SMALL))


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_parts_of_a_batch_are_as_the_batch_with_torch(name):
    settings = {"network": "mlp(8, 8)", "device": "cpu", "threads": 1}
    assert_alike(trained(name, **settings, **LARGE), trained(name, **settings, **SMALL))


def test_native_networks_take_them_as_one_batch():
    settings = {"device": "cpu", "threads": 1}
    large, small = (trained("dqn", **settings, **some) for some in (LARGE, SMALL))
    np.testing.assert_array_equal(small.parameters, large.parameters)


def test_how_many_is_checked():
    with pytest.raises(ValueError, match="gradient_accumulation must be at least 1, got 0"):
        DQN("CartPole-v1", gradient_accumulation=0)
    with pytest.raises(ValueError, match="gradient_accumulation must be smaller, got 1048576"):
        DQN("CartPole-v1", gradient_accumulation=2**20, batch_size=64)
