"""A learner whose reports come one iteration late, as a GPU's do: the same code, here on the CPU under another name."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from fragile import fragile

from velocirl import PPO, Checkpoint, NumericalError
from velocirl.backends.torch.device import TorchCPUDevice
from velocirl.runs.checkpoints import Checkpoints

SMALL = {"num_envs": 32, "horizon": 16, "minibatch_size": 10**9, "epochs": 1, "seed": 5, "threads": 1}
BATCH = 512


@pytest.fixture
def late(monkeypatch):
    """Make what is called after this late."""

    def make_late():
        monkeypatch.setattr(TorchCPUDevice, "reports_late", True)
        monkeypatch.setattr(TorchCPUDevice, "name", "cuda")  # by which records of the host are kept apart

    return make_late


def test_every_row_comes_once(late):
    expected: list[dict] = []
    PPO("CartPole-v1", network="mlp(16)", device="cpu", **SMALL).learn(6 * BATCH, lambda a: expected.append(a.metrics))
    late()
    rows: list[dict] = []
    ahead: list[int] = []

    def watch(agent):
        rows.append(agent.metrics)
        ahead.append(agent.steps - agent.metrics["time/total_timesteps"])

    agent = PPO("CartPole-v1", network="mlp(16)", device="cpu", **SMALL).learn(6 * BATCH, watch)
    assert ahead == [BATCH] * 5 + [0]
    assert agent.steps == 6 * BATCH
    for name in ("time/total_timesteps", "time/iterations", "train/n_updates", "train/loss", "rollout/ep_rew_mean"):
        assert [row[name] for row in rows] == [row[name] for row in expected]


def test_looking_between_iterations_loses_no_row(late):
    late()
    rows: list[int] = []

    def watch(agent):
        rows.append(agent.metrics["time/total_timesteps"])
        agent.predict(np.zeros(4, np.float32))  # which waits for the iteration that is under way

    PPO("CartPole-v1", network="mlp(16)", device="cpu", **SMALL).learn(5 * BATCH, watch)
    assert rows == [BATCH * k for k in range(1, 6)]


@pytest.mark.parametrize(("numbers", "source"), [
    ({"reward": nan}, "a reward of the environment"), ({"reward": -inf}, "a reward of the environment"),
    ({"observation": nan}, "an observation of the environment"),
])  # fmt: skip
def test_nothing_is_saved_of_an_iteration_that_failed(numbers, source, late, tmp_path):
    late()
    agent = PPO(fragile, network="mlp(16)", device="cpu", normalise_observations=True, **SMALL)
    agent.prepare()
    fleet = agent.learner.collector.fleet
    for name, value in {"at": 21 if "reward" in numbers else 20, **numbers}.items():
        fleet.copies.params[name][4] = value
    message = rf"{source} is not finite: copy 4, step {BATCH + 4 * 32} of the run \(4 of this rollout\)"
    with pytest.raises(NumericalError, match=message):
        agent.learn(10 * BATCH, Checkpoint(tmp_path, every=1))
    saved = Checkpoints(tmp_path).steps()
    assert all(steps <= BATCH for steps in saved), saved
    assert np.isfinite(agent.parameters).all()
    assert np.isfinite(agent.observation_moments.state).all()


def test_environments_of_the_host_are_normalised_alike(late):
    """The learner has records and a normaliser of its own; what it makes of a rollout counts for the next one."""
    config = {**SMALL, "num_envs": 8, "normalise_observations": True, "optimiser": "sgd", "learning_rate": 0.01}
    one = PPO("gym:CartPole-v1", network="mlp(16)", device="cpu", **config).learn(3 * 8 * 16)
    late()
    other = PPO("gym:CartPole-v1", network="mlp(16)", device="cpu", **config).learn(3 * 8 * 16)
    assert other.learner.recorded is not other.learner.collector.recorded
    assert one.learner.recorded is one.learner.collector.recorded
    np.testing.assert_allclose(other.arrays()["observation.moments"], one.arrays()["observation.moments"], rtol=1e-6)
    np.testing.assert_allclose(other.parameters, one.parameters, atol=1e-6)
