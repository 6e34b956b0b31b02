"""Where a device records graphs, everything runs once before: here in plain Python, where no index may be too large."""

import numpy as np
import pytest

import velocirl
from velocirl.backends.batch.device import PythonDevice

ROLLOUT = {"num_envs": 2, "horizon": 8, "hidden": (4,)}
REPLAY = {"num_envs": 2, "learning_starts": 8, "train_every": 4, "batch_size": 4, "buffer_size": 100, "hidden": (4,)}
CASES = {
    "one minibatch": ("PPO", "CartPole-v1", {**ROLLOUT, "minibatch_size": 10**9, "epochs": 2}),
    "accumulated": ("PPO", "CartPole-v1", {**ROLLOUT, "minibatch_size": 4, "gradient_accumulation": 3}),
    "whole rollouts": ("PPO", "CartPole-v1", {**ROLLOUT, "minibatch_size": 8, "minibatches": "environments"}),
    "estimated again": ("PPO", "CartPole-v1", {**ROLLOUT, "minibatch_size": 8, "estimator": "vtrace"}),
    "dqn": ("DQN", "CartPole-v1", {**REPLAY, "priority": "proportional", "n_step": 3}),
    "sac": ("SAC", "Pendulum-v1", {**REPLAY, "actor_every": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_it_leaves_everything_as_it_was(case, monkeypatch):
    kind, environment, config = CASES[case]

    def trained():
        agent = getattr(velocirl, kind)(environment, device="python", seed=1, **config)
        agent.learn(48)
        return agent.learner.state()

    expected = trained()
    monkeypatch.setattr(PythonDevice, "captures", True)
    found = trained()
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
