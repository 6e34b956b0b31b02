"""The heartbeat of a run: what it says, that it costs next to nothing, and that nobody is harmed by it."""

import json
import os
import resource
import time
import warnings
from collections import deque
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from velocirl import PPO
from velocirl.engine.disk.files import parse_json
from velocirl.monitor import heartbeat as module
from velocirl.monitor.gauges import gauges_of
from velocirl.monitor.heartbeat import Heartbeat
from velocirl.monitor.heartbeat_file import (
    MOST_BYTES,
    NAME,
    UNFINISHED,
    DamagedHeartbeatError,
    HeartbeatState,
    read_heartbeat,
    write_heartbeat,
)
from velocirl.monitor.resource_use import ResourceUse
from velocirl.runs.directory import Plan, create_run
from velocirl.runs.recording import RunRecorder
from velocirl.training.persistence import Goal

SMALL = {"num_envs": 8, "horizon": 16, "minibatch_size": 64, "epochs": 1, "threads": 1, "seed": 3}
STATE = HeartbeatState(
    time=1_700_000_000.0, pid=12, status="running", steps=500, start=0, total=1000, steps_per_second=100.0,
    mean_return=-1.5, phases={"rollout": 0.25, "rollout/policy": 0.2},
    resources=ResourceUse(cpu_percent=99.0, memory_bytes=5), gauges={"queue/length": 1.0}, history=[],
)  # fmt: skip


@pytest.fixture
def run(tmp_path):
    return create_run(tmp_path / "run", "CartPole-v1", "ppo", {}, 3, plan=Plan(total_steps=1000, checkpoint_every=500))


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def agent_at(steps=0, total=100_000, learner=None, **metrics):
    return SimpleNamespace(
        steps=steps, goal=Goal(0, total), metrics=metrics, _learner=learner, config=SimpleNamespace(device="cpu"),
        recent=SimpleNamespace(returns=deque(maxlen=100)),
    )  # fmt: skip


def plain(path):
    """As any reader of strict JSON sees it."""
    return parse_json((path / NAME).read_bytes())


def test_one_a_second_with_the_speed_of_the_last_seconds(run, clock):
    agent, heartbeat = agent_at(), Heartbeat(run)
    heartbeat.start(agent)
    first = plain(run.path)
    assert (first["steps"], first["total"], first["steps_per_second"], first["history"]) == (0, 100_000, 0.0, [])
    seen = set()
    for tick in range(1, 81):  # 10 seconds with 1000 steps each, then 10 with a tenth of that
        clock[0] += 0.25
        agent.steps += 250 if tick <= 40 else 25
        heartbeat.step(agent)
        seen.add(plain(run.path)["steps"])
    assert len(seen) == 21
    last = plain(run.path)
    assert (last["steps"], last["steps_per_second"]) == (11_000, 100.0)
    assert [round(sample[0]) for sample in last["history"]] == [1000] * 10 + [100] * 10
    assert read_heartbeat(run.path).seconds_left == pytest.approx(890.0)
    assert read_heartbeat(run.path).progress == pytest.approx(0.11)


def test_what_it_says(run):
    learner = SimpleNamespace(gauges=lambda: {"queue/length": 1, "drops": 3.0, "broken": float("nan")})
    metrics = {
        "rollout/ep_rew_mean": 12.5,
        "time/fps": 7.0,
        "time/rollout_share": 0.25,
        "time/rollout/policy_share": 0.1,
    }
    agent, heartbeat = agent_at(learner=learner, **metrics), Heartbeat(run)
    heartbeat.start(agent)
    heartbeat.finish(agent)
    said = plain(run.path)
    assert said.items() >= {
        "pid": os.getpid(), "status": "running", "return": 12.5, "phases": {"rollout": 0.25, "rollout/policy": 0.1},
        "gauges": {"queue/length": 1.0, "drops": 3.0},
    }.items()  # fmt: skip
    assert said["time"] == pytest.approx(time.time(), abs=60)
    memory = psutil.Process().memory_info().rss
    assert said["resources"]["memory_bytes"] >= memory * 0.9
    assert (run.path / NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_return_that_is_no_number_is_none(value, run):
    agent, heartbeat = agent_at(**{"rollout/ep_rew_mean": value}), Heartbeat(run)
    heartbeat.start(agent)
    assert plain(run.path)["return"] is None


def test_a_long_run_keeps_the_last_samples_and_stays_readable(run, clock):
    learner = SimpleNamespace(gauges=lambda: {f"{'x' * 80}{n}": n / 3 for n in range(100)})
    agent, heartbeat = agent_at(learner=learner, total=10**12), Heartbeat(run)
    heartbeat.start(agent)
    for _ in range(300):
        clock[0] += 1.0
        agent.steps += 10**9
        heartbeat.step(agent)
    assert len(read_heartbeat(run.path).history) == 120
    assert (run.path / NAME).stat().st_size < MOST_BYTES / 2


def test_a_step_that_is_not_due_costs_next_to_nothing(run):
    agent, heartbeat = agent_at(), Heartbeat(run, every=1e6)
    heartbeat.start(agent)
    taken = []
    for _ in range(200):
        began = time.perf_counter()
        for _ in range(100):
            heartbeat.step(agent)
        taken.append((time.perf_counter() - began) / 100)
    assert min(taken) < 1e-6


def test_a_heartbeat_takes_less_than_a_thousandth_of_a_second(run):
    agent, heartbeat = agent_at(), Heartbeat(run, every=0.0)
    heartbeat.start(agent)
    for _ in range(120):
        heartbeat._note(time.perf_counter(), 0)
    taken = []
    for _ in range(50):
        began = time.perf_counter()
        heartbeat._write(agent)
        taken.append(time.perf_counter() - began)
    assert min(taken) < 1e-3


def test_on_a_slow_disk_it_is_written_less_often(run, clock, monkeypatch):
    written = []

    def slowly(_path, state):
        written.append(state.steps)
        clock[0] += 0.005

    monkeypatch.setattr(module, "write_heartbeat", slowly)
    agent, heartbeat = agent_at(), Heartbeat(run)
    heartbeat.start(agent)
    began = clock[0]
    while clock[0] < began + 50.0:
        clock[0] += 0.1
        heartbeat.step(agent)
    assert len(written) == pytest.approx(11, abs=1)  # 5 ms every 5 s are a thousandth


def test_training_is_the_same_with_it_and_the_last_one_says_how_it_ended(run):
    watched, alone = PPO("CartPole-v1", **SMALL), PPO("CartPole-v1", **SMALL)
    watched.learn(1280, [RunRecorder(run, 640), Heartbeat(run, every=0.0)])
    alone.learn(1280)
    assert watched.parameters.tobytes() == alone.parameters.tobytes()
    last = read_heartbeat(run.path)
    assert (last.status, last.steps, last.total, last.seconds_left) == ("finished", 1280, 1280, None)
    assert last.mean_return == pytest.approx(watched.metrics["rollout/ep_rew_mean"])
    tops = sum(share for path, share in last.phases.items() if "/" not in path)
    assert tops == pytest.approx(1.0, abs=0.01)
    assert not (run.path / UNFINISHED).exists()


def test_an_error_in_training_is_said_too(run):
    def stumble(agent):
        raise KeyError("stumbled")

    with pytest.raises(KeyError):
        PPO("CartPole-v1", **SMALL).learn(1280, [RunRecorder(run, 640), Heartbeat(run), stumble])
    assert read_heartbeat(run.path).status == "failed"


def test_a_full_disk_is_warned_of_once_and_training_goes_on(run, clock):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    agent, heartbeat = agent_at(), Heartbeat(run, every=0.0)
    heartbeat.start(agent)  # from here on every step is due, as the clock stands still
    before = (run.path / NAME).read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [heartbeat.step(agent) for _ in range(3)] == [None] * 3
            heartbeat.fail(agent, OSError())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [
        "the heartbeat of run could not be written: [Errno 27] File too large" in str(one.message) for one in caught
    ] == [True]
    assert (run.path / NAME).read_bytes() == before
    assert not (run.path / UNFINISHED).exists()
    agent.steps = 77
    heartbeat.step(agent)
    assert read_heartbeat(run.path).steps == 77


def test_what_a_kill_left_is_written_over_and_no_link_is_followed(run, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (run.path / UNFINISHED).symlink_to(precious)
    write_heartbeat(run.path, STATE)
    assert precious.read_text() == "mine"
    assert read_heartbeat(run.path) == STATE
    assert not (run.path / UNFINISHED).exists()


def test_there_is_none_before_the_first(run):
    assert read_heartbeat(run.path) is None


def changed(**changes):
    return json.dumps({**msgspec.to_builtins(STATE), **changes}).encode()


DAMAGED = {
    "empty": (b"", "Expecting value"),
    "cut short": (changed()[:-20], "Expecting"),
    "a list": (b"[]", "Expected `object`"),
    "not text": (b'"\xff\xff"', "codec can't decode"),
    "deep": (b"[" * 30_000, "nested deeper"),
    "a word for a number": (changed(steps="many"), "Expected `int`"),
    "negative": (changed(steps=-1), "`$.steps`"),
    "huge": (changed(steps=10**30), "`$.steps`"),
    "another age": (changed(time=1e300), "`$.time`"),
    "another format": (changed(format=2), "Invalid enum value 2"),
    "another status": (changed(status="dead"), "`$.status`"),
    "a long name": (changed(phases={"x" * 65: 0.1}), "length <= 64"),
    "many names": (changed(gauges={str(n): 0.1 for n in range(65)}), "length <= 64"),
    "a long history": (changed(history=[[1.0, 1.0, 1]] * 121), "length <= 120"),
    "a short sample": (changed(history=[[1.0, 1.0]]), "`$.history[0]`"),
    "infinite": (changed(**{"return": 7}).replace(b": 7", b": 1e999"), "`$.return`"),
    "no number": (changed(**{"return": 7}).replace(b": 7", b": NaN"), "NaN is not JSON"),
    "a key twice": (changed().replace(b'"pid": 12', b'"pid": 12, "pid": 13'), "a key stands twice"),
    "control characters": (changed(**{"\x1b[2J": 1}), r"unknown field `\x1b[2J`"),
    "a long key": (changed(**{"y" * 9000: 1}), "unknown field `yyy"),
    "a long file": (b" " * (MOST_BYTES + 1), "more than 65536 bytes"),
    "a long number": (b"1" * 60_000, "integer string conversion"),
}


@pytest.mark.parametrize(("content", "fault"), DAMAGED.values(), ids=DAMAGED)
def test_what_is_no_heartbeat_is_refused_in_one_line(content, fault, run):
    (run.path / NAME).write_bytes(content)
    with pytest.raises(DamagedHeartbeatError) as raised:
        read_heartbeat(run.path)
    message = str(raised.value)
    assert str(run.path / NAME) in message
    assert fault in message
    assert message.isprintable()
    assert len(message) < 400
    assert (run.path / NAME).read_bytes() == content


def test_what_is_no_file_is_refused_at_once(run):
    os.mkfifo(run.path / NAME)
    with pytest.raises(DamagedHeartbeatError, match="is not a plain file"):
        read_heartbeat(run.path)
    (run.path / NAME).unlink()
    (run.path / NAME).mkdir()
    with pytest.raises(DamagedHeartbeatError, match="Is a directory"):
        read_heartbeat(run.path)
    (run.path / NAME).rmdir()
    (run.path / NAME).symlink_to("/dev/zero")
    with pytest.raises(DamagedHeartbeatError, match="is not a plain file"):
        read_heartbeat(run.path)


def test_gauges_are_those_of_the_learner_and_its_environments():
    envs = SimpleNamespace(gauges=lambda: {"waiting_seconds": 1.0, "restarts": 2})
    assert gauges_of(SimpleNamespace(metrics={})) == gauges_of(agent_at(learner=SimpleNamespace(envs=object()))) == {}
    assert gauges_of(agent_at(learner=SimpleNamespace(envs=envs))) == {"waiting_seconds": 1.0, "restarts": 2.0}
    both = SimpleNamespace(envs=envs, gauges=lambda: {"drops": 5, "gone": float("inf")})
    assert gauges_of(agent_at(learner=both)) == {"waiting_seconds": 1.0, "restarts": 2.0, "drops": 5.0}


def test_waiting_for_workers_is_measured():
    agent = PPO("gym:CartPole-v1", **{**SMALL, "num_envs": 4, "workers": 2})
    agent.learn(256)
    gauges = gauges_of(agent)
    assert (gauges["workers"], gauges["restarts"]) == (2.0, 0.0)
    assert 0.0 < gauges["waiting_seconds"] <= agent.phases["rollout"] + 1.0
    agent.learner.collector.envs.close()
