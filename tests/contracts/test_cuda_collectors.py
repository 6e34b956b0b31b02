"""Collectors beside a learner on a GPU: what they bring arrives there as it was seen, and a seed gives one result."""

from __future__ import annotations

import numpy as np
import pytest
from busy import Counting
from choosing import on_cuda
from filmed import FRAMES, SIZE, STACK, HostFilmed, check_seen, read_back, store

import velocirl
from velocirl.buffers.records import GOES_ON, LOST
from velocirl.buffers.replay import FILLED

pytest.importorskip("torch")
pytestmark = on_cuda()

COMMON = {"seed": 3, "num_envs": 4, "collectors": 2, "device": "cuda", "precision": "float32"}
MEMORY = {**COMMON, "batch_size": 32, "learning_starts": 64, "train_every": 4, "buffer_size": 1000, "n_step": 3}
ROLLOUTS = {**COMMON, "horizon": 16, "minibatch_size": 32, "estimator": "vtrace", "normalise_rewards": False}
NETWORKS = {"native": {"hidden": (16,)}, "torch": {"network": "mlp(16, norm=layer)"}}


def check_counting(seen, following, ended, reward):
    """Every step counts on by one."""
    assert (reward == seen).all()
    goes_on = ended == GOES_ON
    assert (following[goes_on] == seen[goes_on] + 1).all()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("mode", ["paced", "free"])
def test_a_memory_on_a_gpu_gets_what_collectors_saw(network, mode):
    agent = velocirl.DQN(Counting, collect_mode=mode, priority="proportional", **MEMORY, **NETWORKS[network])
    agent.learn(800, progress=False)
    ring, fetch = agent.learner.ring, agent.learner.device.fetch
    rows = fetch(ring.rows)[: int(fetch(ring.counts)[FILLED])]
    assert len(rows) == 800
    check_counting(rows["observation"][:, 0], rows["next_observation"][:, 0], rows["ended"], rows["reward"])
    assert agent.metrics["train/n_updates"] > 0
    assert np.isfinite(agent.parameters).all()
    if mode == "paced":
        assert agent.learner.gauges()["collector/dropped"] == 0


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("priority", ["none", "proportional"])
def test_pictures_on_a_gpu_are_what_free_collectors_saw(network, priority, monkeypatch):
    store(monkeypatch, FRAMES)
    settings = {**MEMORY, "buffer_size": 3000, "collect_mode": "free", "priority": priority, **NETWORKS[network]}
    agent = velocirl.DQN(HostFilmed, **settings).learn(8000, progress=False)
    ring, fetch = agent.learner.ring, agent.learner.device.fetch
    rows = fetch(ring.rows)
    for _ in range(50):
        now, after, places, lasts = read_back(agent)
        assert (rows["ended"][[*places, *lasts]] != LOST).all()
        check_seen(now.reshape(-1, STACK, SIZE), after.reshape(-1, STACK, SIZE), rows[places], rows[lasts])
    assert np.isfinite(agent.parameters).all()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("mode", ["paced", "free"])
def test_rollouts_on_a_gpu_are_what_collectors_saw(network, mode):
    settings = {**ROLLOUTS, **NETWORKS[network], "normalise_observations": False}
    agent = velocirl.PPO(Counting, collect_mode=mode, **settings)
    agent.learn(640, progress=False)
    records = agent.learner.device.fetch(agent.learner.recorded.memory).T  # (copies, horizon + 1)
    seen, steps = records["observation"][..., 0], records[:, :-1]
    assert seen.shape == (4, 17)
    check_counting(seen[:, :-1], seen[:, 1:], steps["ended"], steps["reward"])
    assert agent.learner.gauges()["learner/processed"] == agent.steps == 640
    assert np.isfinite(agent.parameters).all()


@pytest.mark.parametrize(("algorithm", "settings"), [("DQN", MEMORY), ("PPO", ROLLOUTS)])
def test_paced_collectors_beside_a_gpu_give_one_result_for_a_seed(algorithm, settings):
    first, again = (getattr(velocirl, algorithm)(Counting, hidden=(16,), **settings) for _ in range(2))
    for agent in (first, again):
        agent.learn(640, progress=False)
    assert (first.parameters == again.parameters).all()
