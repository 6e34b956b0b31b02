"""Replay buffers that are filled from data before the first step, in plain Python and on CPU threads."""

import numpy as np
import pytest
from choosing import on_cuda
from recorded import file_of, made_up

from velocirl import DQN, SAC, TD3
from velocirl.buffers.records import GOES_ON, TRUNCATED
from velocirl.training.agent import Agent

SMALL = {
    "num_envs": 4,
    "train_every": 4,
    "hidden": (8,),
    "batch_size": 8,
    "buffer_size": 300,
    "device": "python",
    "seed": 1,
}


@pytest.fixture(scope="module")
def data():
    return made_up("Pendulum-v1")


def test_the_first_update_learns_from_data():
    """21 transitions are one too many for groups of four copies: the first one is left out."""
    data = made_up("Pendulum-v1", episodes=1, length=21)
    agent = SAC("Pendulum-v1", prefill=data, **SMALL)
    assert agent.config.learning_starts == 0
    agent.learn(4)
    ring = agent.learner.ring
    assert ring.counts.tolist() == [24, 24, 24]
    assert agent.metrics["train/n_updates"] == 1
    np.testing.assert_array_equal(ring.rows["reward"][:20], data.rewards[1:])
    np.testing.assert_allclose(2 * ring.rows["action"][:20], data.actions[1:], rtol=1e-6)
    np.testing.assert_array_equal(ring.rows["observation"][:20], data.observations[1:-1])
    np.testing.assert_array_equal(ring.rows["next_observation"][:20], data.observations[2:])


def test_over_several_steps_records_of_data_stand_apart(data):
    agent = TD3("Pendulum-v1", prefill=data, n_step=3, **SMALL).learn(4)
    ended = agent.learner.ring.rows["ended"][:240]
    assert not (ended == GOES_ON).any()
    plain = TD3("Pendulum-v1", prefill=data, **SMALL).learn(4)
    assert (plain.learner.ring.rows["ended"][:240] == GOES_ON).sum() == 240 - data.episodes
    assert (ended == TRUNCATED).sum() == 240 - data.episodes // 2


def test_it_goes_on_from_what_it_remembers_and_not_from_the_data(tmp_path):
    path = made_up("CartPole-v1").save(tmp_path / "cart.vds")
    agent = DQN("CartPole-v1", prefill=path, priority="proportional", **SMALL).learn(8)
    file = agent.save(tmp_path / "agent")
    path.unlink()
    again = Agent.load(file)
    assert again.learn(8).learner.ring.counts.tolist() == [256, 256, 256]
    np.testing.assert_array_equal(again.parameters, agent.learn(8).parameters)


@pytest.mark.parametrize("device", ["python", pytest.param("cpu", marks=pytest.mark.slow)])
def test_what_is_remembered_already_fills_the_buffer(tmp_path, device):
    data = made_up("Pendulum-v1", episodes=5, length=20)
    agent = SAC("Pendulum-v1", prefill=data, **SMALL | {"device": device}).learn(32)
    assert agent.metrics["buffer/fill_share"] == (100 + 32) / 300
    file = agent.save(tmp_path / "agent")
    again = Agent.load(file).learn(28)
    assert again.metrics["buffer/fill_share"] == round((100 + 60) / 300, 4)
    assert again.learn(1000).metrics["buffer/fill_share"] == 1.0


def test_a_memory_that_was_not_saved_is_empty(tmp_path):
    agent = SAC("Pendulum-v1", **SMALL, learning_starts=16).learn(60)
    assert agent.metrics["buffer/fill_share"] == 0.2
    again = Agent.load(agent.save(tmp_path / "agent", memory=False)).learn(30)
    assert again.metrics["buffer/fill_share"] == round(32 / 300, 4)


TORCH = {"network": "mlp(8, norm=layer)", "critic": "mlp(8, norm=layer)"}
BACKENDS = {
    "python": {},
    "torch": {**TORCH, "device": "cpu"},
    "overlapped": {**TORCH, "device": "cpu", "overlap": True, "buffer_size": 1000},
    "threads": {"device": "cpu", "threads": 1},
    "cuda": {**TORCH, "device": "cuda"},
}
on_backends = pytest.mark.parametrize("backend", [
    "python", *(pytest.param(name, marks=pytest.mark.slow) for name in ("torch", "overlapped", "threads")),
    pytest.param("cuda", marks=on_cuda()),
])  # fmt: skip


@on_backends
def test_with_priorities_each_record_of_the_data_can_be_drawn(data, backend):
    """As new steps are, they come with the greatest priority."""
    given = {**SMALL, **BACKENDS[backend], "batch_size": 64}
    agent = SAC("Pendulum-v1", prefill=data, priority="proportional", **given)
    agent.prepare()
    state = agent.learner.state()
    priorities, greatest = state["memory.priorities"], state["memory.greatest"]
    assert greatest == 1.0
    assert priorities[:240].tolist() == [1.0] * 240
    assert not priorities[240:].any()
    agent.learn(8)
    learner = agent.learner
    drawn = (
        learner.updates.batch.places if backend == "threads" else learner.ring.device.fetch(learner.ring.drawn.places)
    )
    assert (drawn < 240).mean() > 0.8  # of 248
    assert len(np.unique(drawn)) > 40


def test_what_does_not_fit_is_refused(data):
    with pytest.raises(ValueError, match="has 240 transitions, and buffer_size=200 has no room"):
        SAC("Pendulum-v1", prefill=data, **SMALL | {"buffer_size": 200})
    with pytest.raises(ValueError, match="was recorded in Pendulum-v1, and this agent is for MountainCarContinuous-v0"):
        SAC("MountainCarContinuous-v0", prefill=data, **SMALL)


@pytest.mark.slow
def test_compiled_it_remembers_the_same():
    python, compiled = (
        SAC("Pendulum-v1", prefill=file_of("Pendulum-v1"), **SMALL | {"device": device, "threads": 1}).learn(64)
        for device in ("python", "cpu")
    )
    np.testing.assert_array_equal(compiled.learner.ring.rows["reward"][:240], python.learner.ring.rows["reward"][:240])
    np.testing.assert_allclose(compiled.parameters, python.parameters, rtol=1e-3, atol=1e-5)
