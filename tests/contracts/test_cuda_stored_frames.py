"""Observations that are stored frame by frame on a GPU are read as the environment showed them."""

import numpy as np
import pytest
from choosing import on_cuda
from filmed import FRAMES, HOW, OFF, ON, HostFilmed, check_what_is_drawn, filmed, remembering, store, watch_memory

from velocirl import DQN, PPO
from velocirl.buffers.records import GOES_ON, TRUNCATED
from velocirl.runs.memory_files import whole
from velocirl.training import off_policy

pytestmark = on_cuda()
CUDA = {"device": "cuda", "network": "mlp(8)", "threads": None}
SOURCES = {"native": filmed, "host": HostFilmed}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("source", SOURCES)
def test_what_is_drawn_is_what_was_seen(source, how, monkeypatch):
    """Without graphs, whose steps nobody could watch."""
    monkeypatch.setenv("VELOCIRL_CUDA_GRAPHS", "0")
    store(monkeypatch, FRAMES)
    watch_memory(monkeypatch)
    agent = remembering(SOURCES[source], 36, **CUDA, **HOW[how])
    met = set().union(*(check_what_is_drawn(agent, steps) for steps in (36, 84, 96, 420)))
    assert {one[0] for one in met} >= {GOES_ON, TRUNCATED}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("source", SOURCES)
def test_a_memory_of_frames_learns_the_same(source, how, monkeypatch):
    """As one of what networks read, in graphs and bit for bit."""
    assert_alike(monkeypatch, lambda: DQN(SOURCES[source], **{**OFF, **CUDA, **HOW[how]}).learn(400))


@pytest.mark.parametrize("more", [{}, {"overlap": True, "estimator": "vtrace"}], ids=["in turn", "overlapping"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_rollout_of_frames_learns_the_same(source, more, monkeypatch):
    alike = assert_close if more else np.testing.assert_array_equal  # two at once round as they like
    assert_alike(monkeypatch, lambda: PPO(SOURCES[source], **{**ON, **CUDA, **more}).learn(480), alike)


def assert_close(found, expected, err_msg):
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6, err_msg=err_msg)


def assert_alike(monkeypatch, learn, alike=np.testing.assert_array_equal):
    learnt = []
    for frames in (None, FRAMES):
        store(monkeypatch, frames)
        agent = learn()
        agent.learner.settle()
        learnt.append(agent.learner.networks.state())
    for name, array in learnt[0].items():
        alike(learnt[1][name], array, err_msg=name)


def test_training_goes_on_bit_for_bit(monkeypatch, tmp_path):
    store(monkeypatch, FRAMES)
    monkeypatch.setitem(off_policy.STEPS, "cuda", 60)  # of an iteration, so that there are several
    settings = {**OFF, **CUDA, **HOW["by priority"]}
    uninterrupted = DQN(filmed, **settings).learn(600)
    interrupted = DQN(filmed, **settings).learn(600, lambda agent: agent.steps < 300)
    assert interrupted.steps < 600
    resumed = DQN.load(interrupted.save(tmp_path / "half"), filmed).learn()
    found, expected = whole(resumed.arrays()), whole(uninterrupted.arrays())
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name


def test_a_run_moves_from_the_gpu_to_the_interpreter(monkeypatch, tmp_path):
    store(monkeypatch, FRAMES)
    settings = {**OFF, "device": "cuda", "threads": None}
    agent = DQN(filmed, **settings).learn(400)
    moved = DQN.load(agent.save(tmp_path / "agent"), filmed, device="python", precision="auto")
    moved.prepare()
    found, expected = (whole(one.learner.ring.state()) for one in (moved, agent))
    for name in ("memory.rows", "memory.edges", "memory.finals", "memory.cuts"):
        assert found[name].tobytes() == expected[name].tobytes(), name
