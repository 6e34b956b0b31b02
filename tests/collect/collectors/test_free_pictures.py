"""Free collectors of pictures that are stored frame by frame, as processes: every stack is that of its own episode."""

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from filmed import DEVICES, FRAMES, OFF, HostFilmed, check_memory, store

from velocirl import DQN
from velocirl.buffers.records import LOST
from velocirl.collect.collectors import consolidating

FREE = {"num_envs": 4, "collectors": 2, "collect_mode": "free", "ring_size": 1100, "buffer_size": 2000, "n_step": 3}
PYTHON = DEVICES["python"]


@pytest.fixture(autouse=True)
def _stored(monkeypatch):
    store(monkeypatch, FRAMES)


def trained(environment=HostFilmed, steps=2400, callback=None, **settings):
    return DQN(environment, **{**OFF, **FREE, **PYTHON, **settings}).learn(steps, callback, progress=False)


def gauges_of(agent):
    return agent.learner.steps.collected.gauges()


def check(agent):
    """What can be drawn is whole, and only that is drawn."""
    ring = agent.learner.ring
    ended = check_memory(ring)
    for _ in range(20):
        ring.draw()
        assert (ended[np.asarray(ring.drawn.places)] != LOST).all()
    return ended


@pytest.mark.slow
def test_what_free_collectors_bring_is_whole_where_they_drop(monkeypatch):
    monkeypatch.setattr(consolidating, "WAITING", 1)
    dropped = []

    def be_slow(agent):
        time.sleep(0.2)
        dropped.append(gauges_of(agent)["collector/dropped"])
        return len(dropped) < 3 or dropped[-3] == 0  # until some of what came after a drop was taken

    agent = trained(steps=10**6, callback=be_slow, train_every=1024)
    ended = check(agent)
    assert (ended != LOST).sum() > 0
    assert gauges_of(agent)["collector/waiting_seconds"] == 0


SHORT, LONG = 1600, 6000
ALL = [("python", "none", SHORT), *((one, how, LONG) for one in DEVICES for how in ("none", "proportional"))]


@pytest.mark.parametrize(
    ("device", "priority", "steps"), [ALL[0], *(pytest.param(*one, marks=pytest.mark.slow) for one in ALL[1:])]
)
def test_what_free_collectors_bring_is_whole(device, priority, steps):
    agent = trained(steps=steps, train_every=64, priority=priority, **{"device": "cpu", **DEVICES[device]})
    ended = check(agent)
    gauges = gauges_of(agent)
    assert gauges["learner/processed"] >= agent.steps == steps
    lost = (ended == LOST).reshape(-1, 2).all(1).mean()  # of groups between batches
    assert lost <= 1 / consolidating.ROUNDS_OF_FRAMES + gauges["collector/dropped"] / steps


class Killed(HostFilmed):
    """Kills its process in the middle of an episode, once, where a file says so."""

    def __init__(self, flag):
        super().__init__()
        self.flag = Path(flag)

    def step(self, action):
        if self._step == 3 and self.flag.exists():
            self.flag.unlink(missing_ok=True)
            os.kill(os.getpid(), 9)
        return super().step(action)


@pytest.mark.slow
def test_pictures_of_a_collector_that_was_killed_are_whole(tmp_path):
    flag = tmp_path / "flag"
    restarts = []

    def plant(agent):
        restarts.append(gauges_of(agent)["restarts"])
        if len(restarts) == 2:
            flag.touch()
        return len(restarts) < 4 or restarts[-2] == 0

    with pytest.warns(RuntimeWarning, match="It is replaced, and its episodes are left unfinished"):
        agent = trained(partial(Killed, str(flag)), steps=10**6, callback=plant, train_every=64, buffer_size=20_000)
    assert gauges_of(agent)["restarts"] >= 1
    check(agent)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_a_run_goes_on_from_its_own_memory_and_from_no_other(device, tmp_path):
    file, own = tmp_path / "agent.velocirl", {"device": "cpu", **DEVICES[device], "n_step": 1}
    agent = trained(steps=2400, train_every=64, **own)
    agent.save(file)
    loaded = DQN.load(file, HostFilmed)
    loaded.prepare()
    assert (check(loaded) == check(agent)).all()  # the memory is what it was, but episodes begin anew
    check(loaded.learn(2400, progress=False))
    for others in ({"collectors": None, "workers": 0}, {"collectors": 4}, {"collect_mode": "paced"}):
        with pytest.raises(ValueError, match="filled by 2 free collectors, and stacks of pictures cannot follow its"):
            DQN.load(file, HostFilmed, **others)
    trained(steps=400, collectors=None, collect_mode="paced", workers=0, **own).save(file)
    with pytest.raises(ValueError, match="filled by steps of all copies, and stacks of pictures cannot follow"):
        DQN.load(file, HostFilmed, collectors=2, collect_mode="free", workers=None)
