"""Gymnasium environments in worker processes: the same results as in this process, and no trace after any fault."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode
from mishaps import FailsAtReset, Faulty, Sleepy, Talker, Walker

from velocirl.vector.host.vector_env import HostVectorEnv
from velocirl.vector.host.workers import WorkerError, WorkerVectorEnv

SAME_STEP, NEXT_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


def same(left, right):
    if isinstance(left, dict):
        return set(left) == set(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if not isinstance(left, np.ndarray):
        return left == right
    if left.dtype == object:
        return all(map(same, left, right))
    return left.dtype == right.dtype and np.array_equal(left, right)


def processes(marker):
    """Processes that have the marker in their environment variables."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (directory / "environ").read_bytes():
                found.append(int(directory.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def shared_files():
    """What lies in shared memory, other than what MPI jobs of tests at the same time have there."""
    return {path for path in Path("/dev/shm").iterdir() if not path.name.startswith("sm_segment.")}


@pytest.fixture
def marker(monkeypatch):
    """All processes started in the test are recognised by it; none may be left at its end."""
    marker = f"velocirl-test-{uuid.uuid4().hex}"
    monkeypatch.setenv("VELOCIRL_TEST_MARKER", marker)
    memory = shared_files()
    yield marker
    wait_until(lambda: not processes(marker), 5)
    assert shared_files() - memory == set()


@pytest.mark.parametrize(
    ("environment", "infos", "mode"),
    [("CartPole-v1", False, SAME_STEP), *((Walker, True, mode) for mode in AutoresetMode)],
)
def test_equal_to_one_process(environment, mode, infos, marker):
    serial = HostVectorEnv(environment, 5, seed=9, autoreset_mode=mode, infos=infos)
    parallel = WorkerVectorEnv(environment, 5, workers=2, seed=9, autoreset_mode=mode, infos=infos)
    assert parallel.metadata == serial.metadata
    assert parallel.observation_space == serial.observation_space
    assert same(parallel.reset(), serial.reset())
    generator = np.random.default_rng(0)
    episodes = 0
    for _ in range(100):
        actions = generator.integers(0, 2, 5)
        results = serial.step(actions)
        assert same(parallel.step(actions), results)
        ended = results[2] | results[3]
        episodes += ended.sum()
        if mode == DISABLED and ended.any():
            options = {"reset_mask": ended}
            assert same(parallel.reset(options=options), serial.reset(options=options))
    assert episodes > 5
    assert same(parallel.reset(seed=10), serial.reset(seed=10))
    serial.close()
    parallel.close()


def test_workers_start_without_numba(marker):
    class Local(gymnasium.Env):  # by value: a class of this module would be imported together with it
        observation_space = action_space = spaces.Discrete(2)

        def imported(self):
            return sorted({"gymnasium", "velocirl", "numba"} & set(sys.modules))

    vector = WorkerVectorEnv(Local, 1, workers=1)
    assert vector.call("imported") == (["gymnasium"],)
    vector.close()


def test_calls_reach_every_copy_and_closing_is_final(marker):
    vector = WorkerVectorEnv(Faulty, 3, workers=2, seed=4)
    vector.reset()
    assert vector.np_random_seed == (4, 5, 6)
    vector.step([0, 0, 0])
    assert vector.get_attr("steps") == (1, 1, 1)
    vector.set_attr("note", ["a", "b", "c"])
    assert vector.get_attr("note") == ("a", "b", "c")
    vector.set_attr("note", 5)
    assert vector.get_attr("note") == (5, 5, 5)
    with pytest.raises(WorkerError, match="no_such_thing"):
        vector.get_attr("no_such_thing")
    assert vector.step([0, 0, 0])[0].tolist() == [[2], [2], [2]]
    vector.close()
    vector.close()
    with pytest.raises(ClosedEnvironmentError, match=r"closed \(close\(\) was called\)"):
        vector.reset()


def test_results_without_copies_are_the_shared_memory(marker):
    vector = WorkerVectorEnv(Faulty, 2, workers=2, copy=False)
    observations, _ = vector.reset()
    vector.step([0, 0])
    assert observations.tolist() == [[1], [1]]
    vector.close()
    assert observations.tolist() == [[1], [1]]


@pytest.mark.parametrize(
    ("mishap", "message"),
    [
        (1, r"Faulty: copy 3 raised in worker 1, which has copies 2 to 3:\n(.*\n)*.*OSError: the motor is stuck"),
        (2, r"Faulty: worker 1, which has copies 2 to 3, exited with status 7 while copy 3 was at work"),
        (3, r"Faulty: worker 1, which has copies 2 to 3, was killed by SIGKILL while copy 3 was at work"),
        (4, r"Faulty: worker 1, which has copies 2 to 3, did not answer in time while copy 3 was at work"),
    ],
)
def test_a_fault_is_reported_and_ends_everything(mishap, message, marker):
    vector = WorkerVectorEnv(Faulty, 4, workers=2, timeout=1.0)
    vector.reset()
    vector.step([0, 0, 0, 0])
    start = time.monotonic()
    with pytest.raises(WorkerError, match=message):
        vector.step([0, 0, 0, mishap])
    assert time.monotonic() - start < 5
    assert processes(marker) == []
    with pytest.raises(ClosedEnvironmentError, match=r"closed \(after a failure of worker 1\)"):
        vector.step([0, 0, 0, 0])
    vector.close()


@pytest.mark.parametrize(
    ("mishap", "mode"), [(1, SAME_STEP), (2, SAME_STEP), (4, SAME_STEP), (2, NEXT_STEP), (2, DISABLED)]
)
def test_a_restarted_worker_loses_its_partial_episodes_only(mode, mishap, marker):
    vector = WorkerVectorEnv(Faulty, 3, workers=2, seed=4, timeout=0.5, restarts=1, autoreset_mode=mode)
    vector.reset()
    vector.step([0, 0, 0])
    with pytest.warns(RuntimeWarning, match=r"Faulty: .*\n(.*\n)*It is replaced.*0 restarts left"):
        observations, rewards, terminated, truncated, infos = vector.step([0, 0, mishap])
    # Copy 0 has a worker of its own; copy 1 had taken its step when copy 2 failed.
    assert infos["restarted"].tolist() == [False, True, True]
    assert rewards.tolist() == [1, 0, 0]
    assert terminated.tolist() == [False, False, False]
    assert truncated.tolist() == [False, True, True]
    assert "final_info" not in infos
    if mode == SAME_STEP:
        assert observations.tolist() == [[2], [0], [0]]
        assert infos["_final_obs"].tolist() == [False, True, True]
        assert infos["final_obs"][1:].tolist() == [[1], [1]]
    else:
        assert observations.tolist() == [[2], [1], [1]]
    if mode == DISABLED:
        vector.reset(options={"reset_mask": truncated})
    observations, rewards, _, truncated, infos = vector.step([0, 0, 5])
    if mode == NEXT_STEP:
        assert observations.tolist() == [[3], [0], [0]]
        observations, rewards, _, truncated, infos = vector.step([0, 0, 5])
    assert truncated.tolist() == [False, False, True]
    assert infos["final_info"]["episode"]["l"][2] == 1
    assert infos["final_info"]["episode"]["r"][2] == 1
    assert "restarted" not in infos
    if mode == DISABLED:
        vector.reset(options={"reset_mask": truncated})
    vector.step([0, 0, 0])
    with pytest.raises(WorkerError, match="worker 0, which has copy 0, exited"):  # only one restart was granted
        vector.step([2, 0, 0])
    assert vector.closed


def test_waiting_and_replacing_are_counted(marker):
    vector = WorkerVectorEnv(Sleepy, 2, workers=2, seed=4, restarts=2)
    assert vector.gauges() == {"workers": 2, "waiting_seconds": 0.0, "restarts": 0}
    vector.reset()
    before, began = vector.gauges()["waiting_seconds"], time.monotonic()
    for _ in range(5):
        vector.step([0, 0])
    elapsed = time.monotonic() - began
    time.sleep(0.1)  # is not waiting for them
    assert 5 * 0.02 <= vector.gauges()["waiting_seconds"] - before <= elapsed
    with pytest.warns(RuntimeWarning, match="1 restarts left"):
        vector.step([0, 2])
    assert vector.gauges()["restarts"] == 1
    vector.close()


def test_a_reset_is_repeated_in_the_new_worker_with_the_same_seeds(marker, tmp_path):
    vector = WorkerVectorEnv(FailsAtReset, 2, workers=1, restarts=2, directory=tmp_path)
    expected, _ = vector.reset(seed=5)
    with pytest.warns(RuntimeWarning, match="exited with status 1 while copy 0 was at work"):
        observations, infos = vector.reset(seed=5, options={"fail": True})
    assert len(list(tmp_path.iterdir())) == 2
    assert np.array_equal(observations, expected)
    assert infos["restarted"].tolist() == [True, True]
    vector.close()


def test_after_an_interrupt_reset_starts_anew(marker):
    vector = WorkerVectorEnv(Faulty, 2, workers=2, seed=1, infos=True)
    vector.reset()
    before = set(processes(marker))
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        vector.step([0, 4])
    assert time.monotonic() - start < 8
    assert processes(marker) == []
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        vector.step([0, 0])
    vector.reset()
    assert not before & set(processes(marker))
    assert vector.step([0, 0])[0].tolist() == [[1], [1]]
    timer.join()
    vector.close()


def test_a_forgotten_vector_leaves_nothing(marker):
    gc.collect()  # what earlier tests left behind is not this one's
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        vector = WorkerVectorEnv(Faulty, 2, workers=2)
        vector.reset()
        assert len(processes(marker)) == 2
        del vector
        gc.collect()
        assert processes(marker) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers must be from 1 to num_envs=2"),
        ({"workers": 3}, "workers must be from 1 to num_envs=2"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"restarts": -1}, "restarts must be"),
        ({"num_envs": 0}, "num_envs must be"),
        ({"environment": "CartPol-v1"}, "CartPole-v1"),
        ({"environment": lambda lock=threading.Lock(): lock}, "cannot be sent to worker processes"),  # noqa: B008
    ],
)
def test_refuses_impossible_arguments(arguments, message, marker):
    with pytest.raises(ValueError, match=message):
        WorkerVectorEnv(**{"environment": Faulty, "num_envs": 2, "workers": 1, **arguments})


def test_an_environment_that_cannot_be_made_is_reported(marker):
    with pytest.raises(
        WorkerError, match=r"(?s)an environment raised in worker 0.*unexpected keyword argument 'colour'"
    ):
        WorkerVectorEnv("CartPole-v1", 2, workers=2, colour="red")
    with pytest.raises(ValueError, match="observation space is Text"):
        WorkerVectorEnv(Talker, 2, workers=2)


SCRIPT = """
import signal, sys, time
import gymnasium, numpy
from velocirl.vector.host.workers import WorkerVectorEnv

class Local(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-numpy.inf, numpy.inf, (1,), numpy.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return numpy.array([HEIGHT]), {}

    def step(self, action):
        if action == 1:
            while True:
                pass
        return numpy.array([HEIGHT + 1]), 1.0, False, False, {}

HEIGHT = 40.0
gymnasium.register("Local-v0", Local)
gymnasium.register("Named-v0", "__main__:Local")
print("script runs", flush=True)
vector = WorkerVectorEnv(sys.argv[1], 2, workers=2, timeout=600)
vector.reset()
print(vector.step([0, 0])[0].tolist(), flush=True)
"""


def start_script(path, tail, *arguments):
    path.write_text(SCRIPT + tail)
    command = [sys.executable, "-W", "error", str(path), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


@pytest.mark.parametrize("name", ["Local-v0", "Named-v0"])
def test_a_script_without_guard_uses_its_own_environment(name, marker, tmp_path):
    script = start_script(tmp_path / "script.py", "", name)  # and forgets to close it
    output, errors = script.communicate(timeout=20)
    assert (script.returncode, output, errors) == (0, "script runs\n[[41.0], [41.0]]\n", "")


@pytest.mark.parametrize("busy", [False, True])
def test_control_c_in_the_terminal_ends_all(busy, marker, tmp_path):
    tail = "vector.step([0, 1])" if busy else "while True: vector.step([0, 0])"
    script = start_script(tmp_path / "script.py", tail, "Local-v0")
    assert [script.stdout.readline() for _ in range(2)] == ["script runs\n", "[[41.0], [41.0]]\n"]
    assert len(processes(marker)) >= 3
    time.sleep(0.2)
    os.killpg(script.pid, signal.SIGINT)
    _, errors = script.communicate(timeout=8)
    assert script.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1  # the workers are silent


@pytest.mark.parametrize("busy", [False, True])
def test_workers_end_when_their_parent_is_killed(busy, marker, tmp_path):
    tail = "vector.step([0, 1])" if busy else "time.sleep(1000)"
    script = start_script(tmp_path / "script.py", tail, "Local-v0")
    assert [script.stdout.readline() for _ in range(2)] == ["script runs\n", "[[41.0], [41.0]]\n"]
    workers = [process for process in processes(marker) if process not in (script.pid, os.getpid())]
    assert len(workers) == 2
    time.sleep(0.2)
    script.kill()
    wait_until(lambda: not set(workers) & set(processes(marker)), 8)
    _, errors = script.communicate(timeout=5)
    assert errors == ""
