"""Ctrl-C, SIGTERM and SIGHUP: the iteration under way is finished, a checkpoint saved, nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

import velocirl
from velocirl import PPO
from velocirl.runs.checkpoints import Checkpoints
from velocirl.runs.signals import StopSignals

SMALL = {"num_envs": 6, "horizon": 16, "minibatch_size": 32, "epochs": 2, "hidden": (16, 16), "threads": 2, "seed": 1,
         "shared": True, "activation": "tanh"}  # fmt: skip
SCRIPT = """
import sys, velocirl
environment, directory, workers, slow = sys.argv[1], sys.argv[2], int(sys.argv[3]) or None, float(sys.argv[4])

def tell(agent):
    print("iteration", agent.iterations, flush=True)
    import time; time.sleep(slow)

if __name__ == "__main__":
    agent = velocirl.PPO(environment, workers=workers, **SMALL)
    agent.learn(10**12, [tell, velocirl.Checkpoint(directory, every=10**11)])
"""


@pytest.fixture
def start(tmp_path):
    """Start training in a process group of its own, and wait until it is under way."""
    marker, started = f"marker-{uuid.uuid4()}", []

    def start(environment="Counter-v0", workers=0, slow=0.0):
        script = tmp_path / "train.py"
        script.write_text(SCRIPT.replace("SMALL", repr(SMALL)))
        command = [sys.executable, str(script), environment, str(tmp_path / "saved"), str(workers), str(slow)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "VELOCIRL_TEST_MARKER": marker},
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline() == "iteration 1\n", process.stderr.read()
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    assert not left_behind(marker)


def left_behind(marker):
    """Processes with the marker in their environment, once they had time to go."""
    deadline = time.monotonic() + 5
    while True:
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if marker.encode() in (directory / "environ").read_bytes():
                    found.append(directory.name)
            except OSError:
                continue
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


@needs_proc
@pytest.mark.parametrize(
    ("environment", "workers", "number", "codes"),
    [
        ("Counter-v0", 0, signal.SIGINT, (130, -signal.SIGINT)),
        ("Counter-v0", 0, signal.SIGTERM, (143,)),
        ("Counter-v0", 0, signal.SIGHUP, (129,)),
        ("gym:velocirl/Counter-v0", 2, signal.SIGINT, (130, -signal.SIGINT)),
        pytest.param("gym:velocirl/Counter-v0", 2, signal.SIGTERM, (143,), marks=pytest.mark.slow),
        pytest.param("gym:velocirl/Counter-v0", 2, signal.SIGHUP, (129,), marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_and_ends(number, codes, environment, workers, start, tmp_path):
    process = start(environment, workers)
    asked = time.monotonic()
    os.killpg(process.pid, number)  # as a terminal does: workers get it too
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - asked < 10
    assert process.returncode in codes, errors
    (steps,) = Checkpoints(tmp_path / "saved").steps()
    agent = PPO.load(next(iter(Checkpoints(tmp_path / "saved").steps().values())))
    assert agent.steps == steps >= 96
    assert agent.steps % 96 == 0
    assert not agent.finished


@needs_proc
def test_a_second_signal_ends_at_once(start, tmp_path):
    process = start(slow=60)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None  # it waits for the end of the iteration
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode in (130, -signal.SIGINT)
    assert not Checkpoints(tmp_path / "saved").steps()


def test_signals_are_the_business_of_a_workers_parent():
    """Whoever ends a group of processes sends SIGTERM to workers too; they serve on until the parent is done."""
    envs = velocirl.make_vec("gym:velocirl/Counter-v0", 2, workers=1)
    try:
        envs.reset(seed=0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(envs._workers[0]._process.pid, number)
        seen = [envs.step(np.zeros(2, np.int64))[0][:, 0].tolist() for _ in range(3)]
        assert seen == [[1, 1], [2, 2], [3, 3]]
        assert envs._workers[0]._process.poll() is None
    finally:
        envs.close()


def test_the_first_signal_only_asks():
    before = [signal.getsignal(one) for one in StopSignals.SIGNALS]
    with StopSignals() as signals:
        assert signals.received is None
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(one) for one in StopSignals.SIGNALS] == before
    with pytest.raises(KeyboardInterrupt):
        signals.raise_received()


def test_what_has_nothing_to_save_is_ended_at_once():
    before = [signal.getsignal(one) for one in StopSignals.SIGNALS]
    for number, error in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)):
        with StopSignals() as signals, pytest.raises(error), signals.at_once():
            os.kill(os.getpid(), number)
        assert signals.received == number
    with StopSignals() as signals:
        with signals.at_once():
            pass
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
    assert [signal.getsignal(one) for one in StopSignals.SIGNALS] == before


def test_terminated():
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM
    with pytest.raises(SystemExit) as stopped:
        signals.raise_received()
    assert stopped.value.code == 143
    StopSignals().raise_received()  # nothing came, nothing is raised


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGINT)
            assert signals.received is None
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_signals_alone():
    """Python handles signals in the main thread only; training elsewhere still works."""
    before, outcome = signal.getsignal(signal.SIGINT), []

    def train():
        with StopSignals():
            outcome.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert outcome == [True]


DEAF = """
import sys, velocirl
from toys.environments import drifting
from velocirl.runs import deafness
from velocirl.runs.signals import StopSignals

def step(state, params, action, rng):
    state.count += 1
    while state.count > 50:
        state.count += 1
        state.count -= 1
        state.position = -state.position
    return 0.0, False

deafness.GRACE = 0.5
fleet = velocirl.make_vec(drifting("Deaf-v0", step=step, max_steps=None), 1)
fleet.reset()
with StopSignals():
    print("under way", flush=True)
    for _ in range(60):
        fleet.step([0])
"""


def test_compiled_code_that_never_returns_can_be_ended():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout.readline() == "under way\n", process.stderr.read()
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGTERM)
        assert process.stderr.readline() == "\n"
        assert "an environment whose loop never ends" in process.stderr.readline()
        time.sleep(0.6)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 143
    finally:
        process.kill()
        process.communicate()


def test_listening_leaves_nothing_behind():
    before = len([*Path("/dev/fd").iterdir()]), signal.set_wakeup_fd(-1)
    for _ in range(20):
        with StopSignals():
            pass
    while any(thread.name == "velocirl-signals" for thread in threading.enumerate()):
        time.sleep(0.01)
    assert (len([*Path("/dev/fd").iterdir()]), signal.set_wakeup_fd(-1)) == before
