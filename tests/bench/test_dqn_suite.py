"""The benchmarks of DQN: that everybody does the work that is measured."""

import numpy as np
import pytest

from velocirl.bench.measuring import QUICK
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import find_benchmarks
from velocirl.bench.suite.training import dqn


def test_what_is_claimed():
    claims = {
        (one.name, claim.by, claim.of, claim.at_least)
        for one in find_benchmarks(["dqn"])
        for claim in one.define().claims
        if claim.at_least is not None
    }
    assert claims == {
        ("dqn_update", "value", "velocirl", 1 / 450e-6),
        ("dqn_cartpole", "ratio", "velocirl", 30.0),
        ("dqn_cartpole_128", "ratio", "velocirl", 30.0),
    }


@pytest.mark.slow
def test_velocirl_updates():
    updates = dqn.Updates()
    before = updates.agent.parameters.copy()
    for _ in range(6):
        updates.call()
    state = updates.learner.state()
    assert updates.done == state["learner.updates"] == 120
    assert np.isfinite(updates.agent.parameters).all()
    assert (updates.agent.parameters != before).mean() > 0.9
    np.testing.assert_array_equal(state["target_values.parameters"], before)
    updates.call()
    assert (updates.learner.state()["target_values.parameters"] != before).mean() > 0.9


@pytest.mark.slow
def test_velocirl_trains():
    timed = dqn.velocirl_training(32, steps=2048)
    timed.prepare(QUICK)
    assert timed.sample() > 100


def test_stable_baselines3_does_the_same_work():
    pytest.importorskip("stable_baselines3")
    from velocirl.bench.peers import sb3_dqn

    learner = sb3_dqn.agent(64, 16, 256, 32)
    sizes = [tuple(one.shape) for one in learner.q_net.parameters()]
    assert sizes == [(256, 64), (256,), (256, 256), (256,), (16, 256), (16,)]
    before = [one.detach().clone() for one in learner.q_net.parameters()]
    learner.train(gradient_steps=2, batch_size=32)
    assert learner._n_updates == 2
    assert all((one != other).any() for one, other in zip(before, learner.q_net.parameters(), strict=True))


def test_a_peer_trains():
    pytest.importorskip("stable_baselines3")
    peer = Peer("sb3_dqn", "training", 32, 128, needs="stable_baselines3", amount=128)
    assert peer.sample() > 1
    peer.close()
