"""Observations that are stored frame by frame are read as the environment showed them, by every path."""

import numpy as np
import pytest
from choosing import slow_but
from filmed import (
    DEVICES,
    FRAMES,
    HOW,
    OFF,
    ON,
    STACK,
    HostFilmed,
    check_what_is_drawn,
    filmed,
    remembering,
    store,
    watch_memory,
)  # fmt: skip

from velocirl import DQN, PPO
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED, Frames

SOURCES = {"native": filmed, "host": HostFilmed}

pytestmark = pytest.mark.usefixtures("one_torch_thread")
# What is compiled is compiled for one of them, and what Python steps is stepped for one.
EVERY = [
    pytest.param(source, how, device, marks=[pytest.mark.slow] if "torch" in device or source == "host" else [])
    if how != "by priority"
    else (source, how, device)
    for source in SOURCES
    for how in HOW
    for device in DEVICES
]


@pytest.mark.parametrize(("source", "how", "device"), EVERY)
def test_what_is_drawn_is_what_was_seen(source, how, device, monkeypatch):
    """Before the ring is full and long after, where every place was written several times."""
    store(monkeypatch, FRAMES)
    watch_memory(monkeypatch)
    agent = remembering(SOURCES[source], 36, **DEVICES[device], **HOW[how])
    met = set().union(*(check_what_is_drawn(agent, steps) for steps in (36, 84, 96, 240)))
    both = {False, True} if HOW[how]["n_step"] > 1 else {False}
    ends = {(ended, later) for ended in (GOES_ON, TERMINATED, TRUNCATED) for later in both}
    assert {one[:2] for one in met} == ends
    assert {one[2] for one in met} == set(range(1, STACK + 1))


@pytest.mark.parametrize(("source", "how", "device"), EVERY)
def test_a_memory_of_frames_learns_the_same(source, how, device, monkeypatch):
    """As one of what networks read, bit for bit."""
    learnt = []
    for frames in (None, FRAMES):
        store(monkeypatch, frames)
        learnt.append(DQN(SOURCES[source], **{**OFF, **DEVICES[device], **HOW[how]}).learn(200))
    expected, found = (one.learner.networks.state() for one in learnt)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert [one.learner.ring.frames is None for one in learnt] == [True, False]


@pytest.mark.parametrize("device", slow_but(["python"], DEVICES))
@pytest.mark.parametrize("source", SOURCES)
def test_a_rollout_of_frames_learns_the_same(source, device, monkeypatch):
    """As one of what networks read, bit for bit; also where episodes are cut off, which the value decides."""
    learnt = []
    for frames in (None, FRAMES):
        store(monkeypatch, frames)
        learnt.append(PPO(SOURCES[source], **{**ON, **DEVICES[device]}).learn(240))
    expected, found = (one.learner.networks.state() for one in learnt)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    np.testing.assert_array_equal(learnt[1].parameters, learnt[0].parameters)
    ended = learnt[1].learner.recorded.records["ended"]
    assert set(np.unique(ended[:, :-1])) == {GOES_ON, TERMINATED, TRUNCATED}


def test_environments_say_how_they_are_stored():
    assert DQN(filmed, **OFF, network="mlp(8)").task().frames == FRAMES
    assert DQN("CatchPixels-v0", **OFF, network="mlp(8)").task().frames == Frames(1, 200)
    assert DQN(HostFilmed, **{**OFF, "device": "python"}).task().frames == Frames(
        1, STACK * FRAMES.size
    )  # which nobody stacked
    assert DQN("CartPole-v1", **OFF, network="mlp(8)").task().frames is None  # no bytes
    assert DQN(filmed, **OFF).task().frames is None  # CPU threads store what their networks read
    assert PPO(filmed, **ON, network="mlp(8)", normalise_observations=True).task().frames is None
