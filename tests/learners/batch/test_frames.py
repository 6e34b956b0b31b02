"""Observations that are stored frame by frame are read as the environment showed them, by every path."""

import numpy as np
import pytest
from filmed import (
    DEVICES,
    FRAMES,
    HOW,
    OFF,
    ON,
    SIZE,
    STACK,
    HostFilmed,
    filmed,
    number_of,
    read_back,
    remembering,
    store,
    watch_memory,
)  # fmt: skip

from velocirl import DQN, PPO
from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED

SOURCES = {"native": filmed, "host": HostFilmed}

pytestmark = pytest.mark.usefixtures("one_torch_thread")
on_devices = pytest.mark.parametrize("device", DEVICES)


@on_devices
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("source", SOURCES)
def test_what_is_drawn_is_what_was_seen(source, how, device, monkeypatch):
    """Before the ring is full and long after, where every place was written several times."""
    store(monkeypatch, FRAMES)
    watch_memory(monkeypatch)
    agent = remembering(SOURCES[source], 36, **DEVICES[device], **HOW[how])
    kinds, stacks = set(), set()
    for steps in (36, 84, 96, 420):
        while agent.steps < steps:
            agent.begin_iteration(agent.pace(4), agent.steps + 12)
            agent.drain()
        log = agent.learner.ring.frames.log
        assert len(log) * 3 == steps
        for _ in range(12):
            now, after, places, lasts = read_back(agent)
            for b, (place, last) in enumerate(zip(places, lasts, strict=True)):
                copy, first = place % 3, log[number_of(len(log), 30, place)]
                end = log[number_of(len(log), 30, last)]
                np.testing.assert_array_equal(now[b], first.observation[copy])
                if end.ended[copy] != TERMINATED:  # what comes after a termination is worth nothing
                    np.testing.assert_array_equal(after[b], end.following[copy])
                kinds.add((int(end.ended[copy]), last != place))
                stacks.add(len(np.unique(first.observation[copy].reshape(STACK, SIZE), axis=0)))
    both = {False, True} if HOW[how]["n_step"] > 1 else {False}
    assert kinds == {(ended, later) for ended in (GOES_ON, TERMINATED, TRUNCATED) for later in both}
    assert stacks == set(range(1, STACK + 1))


@on_devices
@pytest.mark.parametrize("how", ["several steps", "by priority"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_memory_of_frames_learns_the_same(source, how, device, monkeypatch):
    """As one of what networks read, bit for bit."""
    learnt = []
    for frames in (None, FRAMES):
        store(monkeypatch, frames)
        learnt.append(DQN(SOURCES[source], **{**OFF, **DEVICES[device], **HOW[how]}).learn(400))
    expected, found = (one.learner.networks.state() for one in learnt)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert learnt[0].learner.ring.frames is None
    assert learnt[1].learner.ring.frames is not None


@on_devices
@pytest.mark.parametrize("source", SOURCES)
def test_a_rollout_of_frames_learns_the_same(source, device, monkeypatch):
    """As one of what networks read, bit for bit; also where episodes are cut off, which the value decides."""
    learnt = []
    for frames in (None, FRAMES):
        store(monkeypatch, frames)
        learnt.append(PPO(SOURCES[source], **{**ON, **DEVICES[device]}).learn(480))
    expected, found = (one.learner.networks.state() for one in learnt)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    np.testing.assert_array_equal(learnt[1].parameters, learnt[0].parameters)
    ended = learnt[1].learner.recorded.records["ended"]
    assert set(np.unique(ended[:, :-1])) == {GOES_ON, TERMINATED, TRUNCATED}
