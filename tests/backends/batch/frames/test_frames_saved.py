"""Memories of frames in files, and what they take of a machine's memory."""

import gymnasium
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

from velocirl import DQN, PPO, Box, Discrete
from velocirl.backends.batch.device import PythonDevice
from velocirl.backends.batch.ring import BatchRing
from velocirl.buffers.frames import room_for
from velocirl.buffers.frames_converted import to_frames, to_observations
from velocirl.buffers.records import GOES_ON, LOST, TERMINATED, TRUNCATED, Act, Frames, transition_type
from velocirl.engine.disk import allowance
from velocirl.engine.disk.saved import within
from velocirl.runs import memory_files
from velocirl.runs.memory_files import read_checkpoint, whole
from velocirl.training.persistence import Goal

pytestmark = pytest.mark.usefixtures("one_torch_thread")
PYTHON = DEVICES["python"]


def assert_same(found, expected):
    found, expected = whole(found), whole(expected)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize(
    ("half", "how"),
    [
        pytest.param(60, "several steps", id="before the ring is full"),
        pytest.param(228, "by priority", id="after it went around"),
        pytest.param(60, "by priority", marks=pytest.mark.slow),
        pytest.param(228, "several steps", marks=pytest.mark.slow),
    ],
)
def test_training_goes_on_bit_for_bit(how, half, monkeypatch, tmp_path):
    store(monkeypatch, FRAMES)
    settings = {**OFF, **PYTHON, **HOW[how]}
    uninterrupted = DQN(filmed, **settings).learn(2 * half)
    interrupted = DQN(filmed, **settings).learn(2 * half, lambda agent: agent.steps < half)
    assert interrupted.steps < 2 * half
    path = interrupted.save(tmp_path / "half")
    assert_same(DQN.load(path, filmed).learn().arrays(), uninterrupted.arrays())


def test_a_rollout_that_waits_is_saved_with_its_frames(monkeypatch, tmp_path):
    store(monkeypatch, FRAMES)
    settings = {**ON, "network": "mlp(8)", "overlap": True, "estimator": "vtrace", "num_envs": 2}
    agent = PPO(HostFilmed, **settings).learn(160)
    arrays = agent.arrays()
    assert arrays["waiting.frames"].shape == ((STACK + 16) * 2, SIZE)
    loaded = PPO.load(agent.save(tmp_path / "waiting"), HostFilmed)
    loaded.prepare()
    np.testing.assert_array_equal(loaded.learner.collector.recorded.contents()["waiting.frames"],
                                  arrays["waiting.frames"])  # fmt: skip


def test_a_rollout_that_waits_as_numbers_is_left_aside(monkeypatch, tmp_path):
    """As runs from before have it: another is collected."""
    settings = {**ON, "network": "mlp(8)", "overlap": True, "estimator": "vtrace", "num_envs": 2}
    store(monkeypatch, None)
    agent = PPO(HostFilmed, **settings).learn(160)
    assert "waiting.records" in agent.arrays()
    assert "waiting.frames" not in agent.arrays()
    path = agent.save(tmp_path / "numbers")
    store(monkeypatch, FRAMES)
    loaded = PPO.load(path, HostFilmed)
    loaded.prepare()
    assert not loaded.learner._background.full
    assert loaded.learn(32).steps == 192


def test_segments_hold_the_frames(monkeypatch, tmp_path):
    store(monkeypatch, FRAMES)
    monkeypatch.setattr(memory_files, "LARGE", 1)
    agent = remembering(filmed, 240, **PYTHON)
    arrays = agent.arrays()
    segments = memory_files.write_checkpoint(tmp_path / "agent", arrays, {})
    assert len(segments) > 0
    assert_same(read_checkpoint(tmp_path / "agent").arrays, arrays)


@pytest.mark.parametrize("device", DEVICES)
def test_episodes_that_a_resumed_run_cuts_off_end_with_what_was_seen_last(device, monkeypatch, tmp_path):
    store(monkeypatch, FRAMES)
    watch_memory(monkeypatch)
    agent = remembering(HostFilmed, 240, **DEVICES[device])
    log = agent.learner.ring.frames.log
    path = agent.save(tmp_path / "agent")
    resumed = DQN.load(path, HostFilmed)
    resumed.goal = Goal(240, 10**6)
    resumed.prepare()
    newest = {copy: step for step, one in enumerate(log) for copy in range(3)}
    went_on = [copy for copy in range(3) if log[-1].ended[copy] == GOES_ON]
    assert went_on
    resumed.begin_iteration(resumed.pace(2), 246)
    seen = set()
    for _ in range(30):
        now, after, places, lasts = read_back(resumed)
        for b, (place, last) in enumerate(zip(places, lasts, strict=True)):
            step, copy = number_of(82, 30, last), place % 3
            if step < 80:
                np.testing.assert_array_equal(now[b], log[number_of(82, 30, place)].observation[copy])
            if step == newest[copy] and copy in went_on:
                np.testing.assert_array_equal(after[b], log[step].following[copy])
                seen.add(copy)
    assert seen == set(went_on)


def test_an_agent_that_forgot_goes_on_in_the_middle_of_an_episode(monkeypatch, tmp_path):
    """The frames before its first step come with what the environment shows."""
    store(monkeypatch, FRAMES)
    watch_memory(monkeypatch)
    agent = remembering(filmed, 39, **PYTHON, num_envs=3, params={"longest": 100})
    arrays = memory_files.forget(agent.learner.state())
    agent.learner.load_state(arrays)
    assert (np.asarray(agent.learner.fleet.copies.elapsed) > 0).any()
    agent.learner.ring.frames.log.clear()
    agent.begin_iteration(agent.pace(5), agent.steps + 15)
    log = agent.learner.ring.frames.log
    for _ in range(10):
        now, _, places, _ = read_back(agent)
        for b, place in enumerate(places):
            np.testing.assert_array_equal(now[b], log[place // 3].observation[place % 3])


@pytest.mark.parametrize("how", HOW)
def test_what_lost_its_last_frame_is_not_drawn(how, monkeypatch):
    """Where Python steps an environment that cuts off every episode after two steps there is not room for all ends."""
    store(monkeypatch, FRAMES)
    watch_memory(monkeypatch)
    agent = remembering(lambda: HostFilmed(longest=10**6, limit=2), 300, **PYTHON, **HOW[how], num_envs=3)
    ring, log = agent.learner.ring, agent.learner.ring.frames.log
    ended = ring.rows["ended"]
    assert (ended == TRUNCATED).sum() == 3 * ring.frames.room.finals == 3 * (30 // 8 + 1)
    assert (ended == LOST).sum() == 3 * 15 - (ended == TRUNCATED).sum()
    if ring.prioritised:
        leaves = ring.tree.reshape(-1)[:90]
        assert (leaves[ended == LOST] == 0).all()
        assert (leaves[ended != LOST] > 0).all()
        assert float(ring.tree[-1, 0]) == pytest.approx(leaves.sum(), rel=1e-6)
    for _ in range(30):
        now, after, places, lasts = read_back(agent)
        assert (ended[places] != LOST).all()
        assert (ended[lasts] != LOST).all()
        for b, (place, last) in enumerate(zip(places, lasts, strict=True)):
            np.testing.assert_array_equal(now[b], log[number_of(100, 30, place)].observation[place % 3])
            np.testing.assert_array_equal(after[b], log[number_of(100, 30, last)].following[place % 3])


def test_a_run_moves_to_the_learner_of_cpu_threads_and_back(monkeypatch, tmp_path):
    store(monkeypatch, FRAMES)
    agent = remembering(filmed, 240, device="python")
    path = agent.save(tmp_path / "frames")
    store(monkeypatch, None)
    expected = remembering(filmed, 240, device="python")
    store(monkeypatch, FRAMES)
    threads = DQN.load(path, filmed, device="cpu", threads=1)
    threads.prepare()
    used = expected.learner.ring.rows
    known = used["ended"] != TERMINATED  # what comes after that nobody reads
    assert_same_rows(threads.learner.ring.rows, used, known)
    again = DQN.load(threads.save(tmp_path / "threads"), filmed, device="python")
    again.prepare()
    memory = within("memory", whole(again.learner.ring.state()))
    rows = to_observations(memory, again.learner.ring.frames.room, used.dtype, np.float32(1 / 255))["rows"]
    assert_same_rows(rows, used, known)


def test_what_free_collectors_cut_off_in_the_middle_of_an_episode_is_not_put_together_anew():
    """Whole observations of two batches: of an episode from its beginning, and of another one from its fifth step."""
    env, seen = HostFilmed(longest=10**6, limit=10**6), []
    for start, stop in ((0, 5), (5, 10)):
        first = [env.reset(seed=start)[0], *(env.step(0)[0] for _ in range(stop))]
        seen += list(zip(first[start:], first[start + 1 :], strict=False))
    numbers = np.zeros(10, transition_type(STACK * SIZE, Act(1, "int32", 0)))
    for k, name in enumerate(("observation", "next_observation")):
        numbers[name] = np.array([one[k].reshape(-1) for one in seen], np.float32) / np.float32(255)
    numbers["ended"][[4, 9]] = TRUNCATED
    room = room_for(FRAMES, 1, 12, 2)
    memory = {"rows": numbers, "counts": np.array([10, 10, 10])}
    kind, factor = transition_type(STACK * SIZE, Act(1, "int32", 0), (), FRAMES), np.float32(1 / 255)
    stored = to_frames(memory, room, kind, factor)
    ended = stored["rows"]["ended"].tolist()
    assert ended == [GOES_ON] * 4 + [TRUNCATED] + [LOST] * (STACK - 1) + [GOES_ON] * 2 + [TRUNCATED]
    held = stored["rows"]["ended"] != LOST
    stored["rows"]["ended"][~held] = GOES_ON  # so that they are read back all the same
    back = to_observations({**stored, "counts": memory["counts"]}, room, numbers.dtype, factor)["rows"]
    for name in ("observation", "next_observation"):
        np.testing.assert_allclose(back[name][held], numbers[name][held], rtol=1e-6)


class Pictures(gymnasium.Env):
    """Four frames of 84 x 84, which nobody looks at."""

    observation_space, action_space = Box(0, 255, (4, 84, 84), np.uint8), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((4, 84, 84), np.uint8), {}


def test_a_transition_takes_the_bytes_of_a_frame(monkeypatch):
    store(monkeypatch, Frames(4, 84 * 84))
    agent = DQN(Pictures, **{**OFF, "num_envs": 1, "buffer_size": 1000, "hidden": (), **PYTHON})
    agent.prepare()
    ring = agent.learner.ring
    taken = ring.rows.nbytes + ring.frames.now.frames.nbytes
    frames = 1000 + 4 + (1000 // 8 + 1)  # of steps, of the stack, and of ends: where Python steps, one in eight may be
    assert taken == 1000 * 20 + frames * 84 * 84
    assert transition_type(4 * 84 * 84, Act(1, "int32", 0)).itemsize == 225_804  # what it would take as numbers
    collectors = {"collectors": 2, "collect_mode": "free", "num_envs": 2, "workers": None}
    free = DQN(Pictures, **{**OFF, **PYTHON, **collectors, "buffer_size": 1000, "hidden": ()})
    free = BatchRing(PythonDevice(), free.task(), agent.learner.clock, (0, free.config.batch_size))
    assert free.rows.nbytes + free.frames.now.frames.nbytes == taken


def test_a_memory_larger_than_that_of_the_machine_is_refused(monkeypatch):
    store(monkeypatch, Frames(4, 84 * 84))
    monkeypatch.setattr(allowance, "memory_of_machine", lambda: 2**30)
    agent = DQN(Pictures, **{**OFF, "num_envs": 1, "buffer_size": 10**6, "hidden": (), **PYTHON})
    message = r"a memory of 1,000,000 transitions \(buffer_size\) would take 7\.4 GiB, and this machine has 1\.0 GiB"
    with pytest.raises(MemoryError, match=message):
        agent.learn(10)


def assert_same_rows(found, expected, known):
    for name in expected.dtype.names:
        chosen = known if name == "next_observation" else slice(None)
        np.testing.assert_array_equal(found[name][chosen], expected[name][chosen], err_msg=name)
