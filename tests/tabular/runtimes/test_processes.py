"""Processes that learn into one table: as good as one, gone without a trace, and clear about what went wrong."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import wanderer
from gymnasium import spaces
from wanderer import EXIT, HANG, MOTOR, NOT_A_NUMBER

from velocirl import Discrete, Environment, int32, random, record, uniform
from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.program.faults import NumericalError
from velocirl.runs.checkpoints import Checkpoints
from velocirl.tabular.runtimes import processes
from velocirl.training.callbacks import Checkpoint
from velocirl.training.evaluation import evaluate
from velocirl.vector.host.worker_handle import WorkerError

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for processes in /proc")
known = pytest.fixture(autouse=True)(wanderer.register)


class Corridor(gymnasium.Env):
    """A place drawn anew at every step; what is done there pays the place and the action, so that Q is that."""

    observation_space = spaces.Discrete(5000)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(5000))
        return self.place, {}

    def step(self, action):
        reward, self.place = self.place + 10_000.0 * int(action), int(self.np_random.integers(5000))
        return self.place, reward, False, False, {}


def children(before=()):
    """The processes that this one has started and that still run, but for those `before`."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, parent = (directory / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z" and int(directory.name) not in before:
                found.append(int(directory.name))
    return found


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def no_trace():
    """No process and no open file is left at the end of a test."""
    gc.collect()
    before, files = children(), open_files()
    yield before
    gc.collect()
    wait_until(lambda: not children(before), 5)
    assert open_files() <= files  # what an earlier test left may have gone meanwhile


def wander(workers, params=None, **config):
    return QLearning(
        "gym:Wanderer-v0", seed=3, gamma=0.9, runtime="processes", workers=workers, params=params, **config
    )


@pytest.mark.parametrize("storage", ["dense", pytest.param("sparse", marks=pytest.mark.slow)])
def test_one_worker_learns_what_no_worker_would(storage):
    alone = QLearning("gym:Wanderer-v0", seed=3, gamma=0.9, num_envs=2, storage=storage).learn(600)
    served = wander(1, num_envs=2, storage=storage).learn(600)
    assert served.steps == alone.steps
    assert list(served.recent.returns) == list(alone.recent.returns)
    np.testing.assert_array_equal(served.table.keys, alone.table.keys)
    np.testing.assert_array_equal(served.table.values, alone.table.values)


def test_two_workers_solve_a_lake(tmp_path):
    agent = QLearning("gym:FrozenLake-v1", seed=0, runtime="processes", workers=2, params={"is_slippery": 0.0})
    agent.learn(20_000)
    assert agent.steps == 20_000
    assert max(agent.recent.returns) == 1.0
    assert evaluate(agent, episodes=5, seed=1).returns.tolist() == [1.0] * 5
    loaded = QLearning.load(agent.save(tmp_path / "agent"), runtime="serial", workers=None)
    assert loaded.num_envs == 2
    np.testing.assert_array_equal(loaded.table.values, agent.table.values)
    assert evaluate(loaded.learn(1000), episodes=5, seed=1).returns.tolist() == [1.0] * 5


@pytest.mark.slow
def test_two_workers_solve_taxi():
    agent = QLearning("gym:Taxi-v4", seed=0, runtime="processes", workers=2, num_envs=4, learning_rate=0.3)
    assert evaluate(agent.learn(300_000), episodes=500, seed=1).mean_return > 7


@pytest.mark.slow
def test_a_sparse_table_grows_while_workers_wait():
    gymnasium.register("Corridor-v0", entry_point=Corridor)
    try:
        agent = QLearning(
            "gym:Corridor-v0", seed=0, gamma=0.0, learning_rate=1.0, storage="sparse", runtime="processes", workers=2,
            num_envs=8, exploration_schedule="constant",
        )  # fmt: skip
        room = agent.table.capacity
        agent.predict(0)  # acting has seen the table where it was before
        agent.learn(40_000)
    finally:
        gymnasium.registry.pop("Corridor-v0")
    used = agent.table.keys >= 0  # not left over by a worker that came second
    keys, values = agent.table.keys[used], agent.table.values[used]
    assert len(keys) == len(set(keys.tolist())) > 4 * room
    learnt = values != 0
    assert learnt.mean() > 0.9
    np.testing.assert_array_equal(values[learnt], (keys[:, None] + np.array([0.0, 10_000.0]))[learnt])
    tried = keys[learnt.all(axis=1)][:100]
    assert [int(agent.predict(place, deterministic=True)[0]) for place in tried] == [1] * 100


def test_a_compiled_environment_in_processes():
    alone = QLearning("TicTacToe-v1", seed=0).learn(200_000)
    served = QLearning("TicTacToe-v1", seed=0, runtime="processes", workers=1, num_envs=alone.num_envs).learn(200_000)
    np.testing.assert_array_equal(served.table.values, alone.table.values)


@record
class Place:
    number: int32


def draw_place(state, params, rng):
    state.number = random.integer(rng, 0, 1_000_000)


def move(state, params, action, rng):
    state.number = random.integer(rng, 0, 1_000_000)
    return 1.0, False


def observe(state, params, observation):
    observation[0] = state.number


@pytest.mark.slow  # it waits for processes to meet at the same row
def test_processes_add_rows_at_the_same_time():
    scatter = Environment(
        "Scatter-v0", state=Place, observation=Discrete(1_000_000), action=Discrete(2), reset=draw_place, step=move,
        observe=observe,
    )  # fmt: skip
    options = {"storage": "sparse", "runtime": "processes", "workers": 2, "num_envs": 512}
    agent = QLearning(scatter, seed=0, **options).learn(300_000)
    used = agent.table.keys >= 0
    keys = agent.table.keys[used]
    assert len(keys) == len(set(keys.tolist())) > 200_000
    np.testing.assert_array_equal(agent.table.places(keys), np.flatnonzero(used))


@pytest.mark.slow
def test_going_on_continues_the_streams_of_a_compiled_environment(tmp_path):
    options = {"seed": 0, "runtime": "processes", "workers": 2, "num_envs": 8}
    agent = QLearning("TicTacToe-v1", **options).learn(100_000)
    state = agent.learner.state()
    loaded = QLearning.load(agent.save(tmp_path / "agent"))
    loaded.prepare()
    again = loaded.learner.state()
    assert set(state) == set(again)
    for name, array in state.items():
        np.testing.assert_array_equal(again[name], array)
    with pytest.raises(ValueError, match="with as many copies as it had: leave num_envs out"):
        QLearning.load(tmp_path / "agent", num_envs=4).prepare()


def test_a_worker_that_raises_is_named(no_trace):
    agent = wander(2, {"mishap": float(MOTOR), "at": 40.0}, num_envs=4)
    with pytest.raises(WorkerError, match="the motor is stuck") as raised:
        agent.learn(2000)
    report = str(raised.value)
    first = {"0": (0, 1), "1": (2, 3)}
    worker = report.partition("gym:Wanderer-v0: worker ")[2][0]
    assert f"worker {worker}, which has copies {first[worker][0]} to {first[worker][1]}, raised:\nTraceback" in report
    assert any(f"raised by copy {copy} of Wanderer-v0" in report for copy in first[worker])
    assert not children(no_trace)
    assert (agent.table.values != 0).any()  # what was learnt can be read


def test_a_killed_worker_is_an_error_and_the_checkpoint_goes_on(tmp_path):
    agent = wander(2, {"mishap": float(EXIT), "at": 1000.0})
    agent.prepare()
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"worker (\d), which has copy \1, was killed by SIGKILL"):
        agent.learn(5000, callbacks=Checkpoint(tmp_path, every=500))
    assert time.monotonic() - began < 10
    saved = Checkpoints(tmp_path).latest()
    assert 0 < saved.state.document["steps"] < 2000
    going_on = QLearning.from_state(saved.state, params={})
    np.testing.assert_array_equal(going_on.table.state()["values"], saved.state.arrays["table.values"])
    assert going_on.learn().steps == 5000


@pytest.mark.slow
def test_after_a_fault_new_workers_begin_other_episodes(no_trace):
    agent = wander(2)
    agent.learn(500)
    os.kill(children(no_trace)[0], signal.SIGKILL)
    with pytest.raises(WorkerError, match="was killed by SIGKILL"):
        agent.learn(500)
    assert agent.learner.state() == {}
    steps = agent.steps
    assert agent.learn(500).steps == steps + 500
    assert agent.learner.gauges()["restarts"] == 1
    fresh = wander(2)
    fresh.prepare()
    seen, first = agent.learner.state()["policy.rng"], fresh.learner.state()["policy.rng"]
    assert not set(seen.ravel().tolist()) & set(first.ravel().tolist())


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended(monkeypatch, no_trace):
    monkeypatch.setattr(processes, "PATIENCE", 1.0)
    agent = wander(2, {"mishap": float(HANG), "at": 40.0})
    with pytest.raises(WorkerError, match="has not done a step, or answered, for 1 s"):
        agent.learn(20_000)
    assert not children(no_trace)


def test_a_slow_call_ends_before_its_time(monkeypatch):
    monkeypatch.setattr(processes, "LONGEST", 0.2)
    agent = wander(2, {"pause": 0.01})
    agent.prepare()
    steps, began = [], time.monotonic()
    agent.learn(200, callbacks=lambda agent: steps.append(agent.steps))
    elapsed = time.monotonic() - began
    assert steps[-1] in (200, 201)  # a call that ended early may leave an odd number, of which whole rounds are made
    assert len(steps) >= 3  # instead of one, which would take a second
    gauges = agent.learner.gauges()
    assert (gauges["workers"], gauges["restarts"]) == (2, 0)
    assert 100 * 0.01 * 0.9 <= gauges["waiting_seconds"] <= elapsed
    assert 0.0 < gauges["workers/idle_seconds"] < gauges["waiting_seconds"]


@pytest.mark.slow
def test_a_fault_is_that_of_its_copy():
    agent = wander(2, {"mishap": float(NOT_A_NUMBER), "at": 40.0})
    with pytest.raises(NumericalError, match=r"a reward of the environment is not finite: copy [01], step"):
        agent.learn(2000)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="pinning needs Linux")
def test_workers_keep_to_their_cores(no_trace):
    cores = sorted(os.sched_getaffinity(0))
    count = min(2, len(cores))
    agent = wander(count, pin=True)
    agent.prepare()
    assert sorted(os.sched_getaffinity(child) for child in children(no_trace)) == [{core} for core in cores[:count]]
    assert os.sched_getaffinity(0) == set(cores)
    with pytest.raises(ValueError, match="pin needs a core for each of"):
        wander(len(cores) + 1, pin=True).prepare()


SCRIPT = """
import sys, gymnasium
from velocirl.algorithms.tabular.q_learning import QLearning
from velocirl.training.callbacks import Checkpoint

class Walk(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(4), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}
    def step(self, action):
        return int(self.np_random.integers(4)), 1.0, False, False, {}

gymnasium.register("Walk-v0", entry_point=Walk)
agent = QLearning("gym:Walk-v0", runtime="processes", workers=2)
agent.prepare()
print("ready", flush=True)
agent.learn(10**9, callbacks=Checkpoint(sys.argv[1]))
"""


def started(tmp_path):
    """The script above at work, and its workers."""
    (tmp_path / "walk.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "walk.py", tmp_path / "checkpoints"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout.readline() == b"ready\n"
    workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    assert len(workers) == 2
    time.sleep(0.5)
    return process, workers


def test_an_interrupt_saves_and_ends_all(tmp_path):
    process, workers = started(tmp_path)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to all of them
    try:
        assert process.wait(10) != 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # where these tests run in a shell's background, it is not heard
    process.stdout.close()
    wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 5)
    assert Checkpoints(tmp_path / "checkpoints").latest().state.document["steps"] > 0


@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path):
    process, workers = started(tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()
    wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 8)


@pytest.mark.slow
def test_each_worker_has_the_parameters_of_its_own_copies():
    flips = [False, True, True, False]
    agent = QLearning(
        "FrozenLake-v1", runtime="processes", workers=2, num_envs=4, seed=1, params={"is_slippery": flips}
    ).learn(64)
    assert agent.arrays()["fleet.params"]["is_slippery"].tolist() == flips
    agent.set_params(is_slippery=uniform(1, 1))
    rows = agent.learn(64).arrays()["fleet.params"]
    assert rows["_is_slippery_low"].tolist() == rows["_is_slippery_high"].tolist() == [1, 1, 1, 1]
