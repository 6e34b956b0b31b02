"""Batch norms: their statistics are taken where gradients are, and reach whoever acts, targets and checkpoints."""

import numpy as np
import pytest
import torch
from choosing import slow_but
from torch import nn

from velocirl import DQN, PPO, SAC, Box, evaluate
from velocirl.networks.encoding import encoding_for
from velocirl.networks.torch.network import TorchNetwork
from velocirl.runs.memory_files import whole as whole_arrays

SMALL = {"num_envs": 4, "seed": 5, "threads": 1, "device": "cpu"}
ROLLOUT = {**SMALL, "horizon": 8, "minibatch_size": 16, "epochs": 1}
MEMORY = {**SMALL, "batch_size": 16, "learning_starts": 32, "buffer_size": 500}
AGENTS = {
    "ppo": lambda: PPO("Counter-v0", network="mlp(8, norm=batch)", **ROLLOUT),
    "ppo overlapping": lambda: PPO(
        "gym:velocirl/Counter-v0", network="mlp(8, norm=batch)", estimator="vtrace", overlap=True, workers=0, **ROLLOUT
    ),
    "dqn": lambda: DQN("Counter-v0", network="mlp(8, norm=batch)", target_every=7, **MEMORY),
    "dqn of images": lambda: DQN("CatchPixels-v0", network="cnn(4x3s2, norm=batch) mlp(8)", **MEMORY),
    "sac": lambda: SAC("Pendulum-v1", network="mlp(8, norm=batch)", critic="mlp(8, norm=batch)", **MEMORY),
}

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def statistics(network):
    return {name: array for name, array in network.buffers().items() if "running" in name}


def differ(some, others):
    return any(not np.array_equal(array, others[name]) for name, array in some.items())


def same(some, others):
    return some.keys() == others.keys() and not differ(some, others)


def test_statistics_are_those_of_the_batches_that_were_learnt_from():
    """As of a module of torch that is trained on the same rows; acting reads them and changes nothing."""
    module, alone = (nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)) for _ in range(2))
    alone.load_state_dict(module.state_dict())
    network = TorchNetwork(module, encoding_for(Box(-1, 1, (3,)), False), (2,))
    rows, before = torch.randn(10, 3), statistics(network)
    torch.testing.assert_close(network.forward(rows)[0], alone.eval()(rows).detach())
    with network.reading_back():
        network.forward(rows)  # for a gradient of what it reads, not of its parameters
    assert same(statistics(network), before)
    with network.learning():
        learnt = network.forward(rows)[0]
    torch.testing.assert_close(learnt, alone.train()(rows).detach())
    torch.testing.assert_close(network.module[0].running_mean, alone[0].running_mean)
    torch.testing.assert_close(network.forward(rows)[0], alone.eval()(rows).detach())
    twin = network.twin()
    with twin.learning():
        twin.forward(rows)
    assert differ(statistics(twin), statistics(network))


@pytest.mark.parametrize("name", slow_but({"ppo overlapping", "dqn"}, AGENTS))
def test_they_are_saved_and_training_goes_on_bit_for_bit(name, tmp_path):
    whole = AGENTS[name]().learn(256)
    half = AGENTS[name]().learn(256, lambda agent: agent.steps < 128)
    resumed = type(half).load(half.save(tmp_path / "half")).learn()
    expected, found = (whole_arrays(one.arrays()) for one in (whole, resumed))
    assert any("running_mean" in key for key in expected)
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        assert found[key].tobytes() == array.tobytes(), key


def test_whoever_acts_has_those_that_were_taken():
    agent = AGENTS["dqn"]()
    policy, before = agent.policy, statistics(agent.policy.built.held)
    agent.learn(256)
    own = statistics(agent.learner.networks.networks[agent.learner.task.acting])
    assert differ(own, before)
    assert same(statistics(policy.built.held), own)
    evaluate(agent, episodes=2)
    agent.predict(np.zeros(1, np.float32))
    assert same(statistics(policy.built.held), own)


@pytest.mark.parametrize(("every", "follows"), [(1, True), (10**6, False)])
def test_targets_follow_with_them(every, follows):
    agent = DQN("Counter-v0", network="mlp(8, norm=batch)", target_every=every, **MEMORY)
    before = statistics(agent.policy.built.held)
    networks = agent.learn(200).learner.networks.networks
    (target, source), *_ = agent.learner.task.targets.items()
    assert differ(statistics(networks[source]), before)
    assert same(statistics(networks[target]), statistics(networks[source]) if follows else before)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_a_network_with_norms_learns(norm):
    """Perfect 16, random 4; seed 0, 20,000 steps."""
    settings = {"num_envs": 32, "horizon": 16, "minibatch_size": 128, "learning_rate": 3e-3, "gamma": 0.0}
    agent = PPO("Identity-v0", network=f"mlp(64, norm={norm})", seed=0, threads=1, device="cpu", **settings)
    assert evaluate(agent.learn(20_000), episodes=50, seed=1).mean_return >= 15
