"""Commands that a shell has started with SIGINT ignored, as in the background of a script: they go on ignoring it."""

import os
import signal
import subprocess
import time

import psutil
import pytest

from velocirl.runs.directory import open_run

pytestmark = pytest.mark.usefixtures("no_pictures_in_processes")

IGNORING = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
SLICE = 2.0  # seconds in which it is seen whether a process still works


@pytest.fixture
def start():
    """Start a command of ours with SIGINT ignored, in a group of its own; nothing of it is left after the test."""
    started = []

    def start(command, *arguments):
        words = [*IGNORING, *command, *map(str, arguments)]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        left = [one for one in psutil.process_iter() if _group(one) == process.pid]
        for one in left:
            one.kill()
        process.communicate()
        assert [one.pid for one in left] in ([], [process.pid])


def _group(process):
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def wait_for_iterations(process, count=3):
    for number, _ in enumerate(process.stdout):
        if number == count:
            return


@pytest.mark.parametrize("more", [(), pytest.param(("--seeds", "2"), marks=pytest.mark.slow)], ids=["run", "seeds"])
def test_training_goes_on_after_an_interrupt_and_ends_by_sigterm(more, start, command, small, tmp_path):
    where = tmp_path / "run"
    arguments = ["train", "CartPole-v1", *small, "--total-steps", "1B", "--run-dir", where, "--json", *more]
    process = start(command, *arguments)
    wait_for_iterations(process)
    for _ in range(3):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
    wait_for_iterations(process)  # it trains
    assert process.poll() is None
    os.kill(process.pid, signal.SIGTERM)
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (143, "")
    assert not [one for one in psutil.process_iter() if _group(one) == process.pid]
    run = open_run(where if not more else where / "seed-3")
    assert run.description.status == "stopped"
    assert run.checkpoints().steps()


def test_a_monitor_goes_on_after_an_interrupt_and_takes_no_core(start, command, small, tmp_path):
    where = tmp_path / "run"
    training = start(command, "train", "CartPole-v1", *small, "--total-steps", "1B", "--run-dir", where, "--json")
    wait_for_iterations(training)
    training.send_signal(signal.SIGSTOP)  # a core is not needed for what is watched
    process = start(command, "monitor", where, "--interval", "0.2")
    assert " steps " in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    watched = psutil.Process(process.pid)
    before = sum(watched.cpu_times()[:2])
    time.sleep(SLICE)
    assert process.poll() is None
    assert sum(watched.cpu_times()[:2]) - before < 0.5 * SLICE
    process.terminate()
    assert process.wait(timeout=30) == -signal.SIGTERM
