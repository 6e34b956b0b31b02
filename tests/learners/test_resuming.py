"""Training that is interrupted, saved, loaded and led to its end: bit for bit as if nothing had happened.

Every algorithm does so in Python and, those that are compiled anyway, on CPU threads in contracts/test_algorithms.py;
here are the learners that are not among these.
"""

import pytest

from velocirl import DQN, PPO, SAC
from velocirl.training.agent import Agent

REPLAY = {"num_envs": 2, "learning_starts": 16, "train_every": 4, "batch_size": 8, "buffer_size": 100}
ROLLOUT = {"num_envs": 4, "horizon": 8, "minibatch_size": 16, "epochs": 2}
NATIVE, TORCH = {"hidden": (16, 16)}, {"network": "mlp(16, 16)"}
REMEMBERING = {"normalise_observations": True, "normalise_rewards": True, "minibatches": "environments"}
PRIORITIES = {"priority": "proportional", "n_step": 2}
LEARNERS = {
    "threads from a memory": (SAC, "IdentityContinuous-v0", {**REPLAY, **NATIVE}),
    "torch from rollouts": (PPO, "Counter-v0", {**ROLLOUT, **TORCH}),
    "torch from rollouts, recurrent and normalised": (
        PPO, "Counter-v0", {**ROLLOUT, **REMEMBERING, "network": "mlp(16) gru(8)"}),
    "torch from a memory": (DQN, "Counter-v0", {**REPLAY, **TORCH}),
    "torch from a memory with priorities": (DQN, "Counter-v0", {**REPLAY, **TORCH, **PRIORITIES}),
    "torch with several networks": (SAC, "IdentityContinuous-v0", {**REPLAY, **TORCH, "critic": "mlp(16, 16)"}),
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def made(name, **changes):
    kind, environment, config = LEARNERS[name]
    return kind(environment, **{"device": "cpu", "threads": 1, "seed": 4, **config, **changes})


def assert_same(found, expected):
    found, expected = found.state(), expected.state()
    assert found.document == expected.document
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        for field in array.dtype.names or (...,):
            assert found.arrays[name][field].tobytes() == array[field].tobytes(), f"{name} {field}"


@pytest.mark.parametrize("name", LEARNERS)
def test_going_on_from_a_file_is_going_on(name, tmp_path):
    """To the end of an interrupted run, and then further than that."""
    agent = made(name)
    batch = agent.config.num_envs * getattr(agent.config, "horizon", 32)
    whole = agent.learn(2 * batch).learn(2 * batch)
    first = made(name).learn(2 * batch)
    again = Agent.load(first.save(tmp_path / "agent"))
    assert_same(again, first)
    assert_same(again.learn(2 * batch), whole)
    assert not (whole.parameters == made(name).parameters).all()
    assert not (whole.parameters == made(name, seed=5).learn(2 * batch).learn(2 * batch).parameters).all()
