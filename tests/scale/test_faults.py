"""What goes wrong with ranks, for real: they are killed, stopped and sent to sleep, and launched in wrong ways."""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from ranks import COMMAND, TELL, finish, needs_mpi, pids_of, start, torchrun, train, wait_for

import velocirl
from velocirl.runs.directory import open_run

pytestmark = pytest.mark.slow
ENDLESS = ("--total-steps", 10**10, "--checkpoint-every", 12_800, "--quiet")
RANK = {"mpi": b"OMPI_COMM_WORLD_RANK=", "torch": b"RANK="}  # the variable that says which one it is
SOON = 15  # seconds in which a job ends when one of its ranks has
HANG = 3  # seconds after which a rank hangs here


def launch(runtime, *arguments):
    """A job of two ranks, of mpirun or of torchrun; each a Python with these arguments."""
    if runtime == "mpi":
        return start(2, *arguments)
    pytest.importorskip("torch")
    if list(arguments[: len(COMMAND)]) == COMMAND:
        arguments = ["-m", "velocirl", *arguments[len(COMMAND) :]]
    return torchrun(*arguments)


def checkpoints(directory):
    return list((directory / "checkpoints").glob("step_*"))


def assert_all_ended(pids):
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()), 10)


def assert_goes_on(runtime, directory, ranks=2):
    """The run goes on from its last checkpoint to the end that it is given."""
    until = max(open_run(directory).checkpoints().steps()) + 1280
    words = [*COMMAND, "resume", directory, "--total-steps", until, "--quiet"]
    code, _, complaints = finish(launch(runtime, *words) if ranks == 2 else start(ranks, *words))
    assert code == 0, complaints
    assert open_run(directory).checkpoints().latest().step == until
    return complaints


@needs_mpi
@pytest.mark.parametrize(("runtime", "kills"), [("mpi", 20), ("torch", 6)])
def test_ranks_killed_at_random_moments_end_the_job_and_the_run_goes_on(tmp_path, runtime, kills):
    """While they start, compile, learn and save; one after the other, in the same run."""
    directory, draw, usual = tmp_path / "run", random.Random(0), None
    for _ in range(kills):
        words = train(directory, *ENDLESS) if usual is None else [*COMMAND, "resume", directory, "--quiet"]
        job, began = launch(runtime, *words), time.monotonic()
        pids = pids_of(job, 2, RANK[runtime])
        if usual is None:
            wait_for(lambda: checkpoints(directory))
            usual = time.monotonic() - began
        else:
            time.sleep(draw.uniform(0.0, 1.5 * usual))
        rank, killed = draw.randrange(2), time.monotonic()
        os.kill(pids[rank], signal.SIGKILL)
        code, _, complaints = finish(job, limit=60)
        assert code != 0
        assert time.monotonic() - killed < SOON
        assert_all_ended(pids)
        assert re.search(rf"rank\s*:? {rank}\b", complaints), complaints
        assert re.search(r"signal 9|SIGKILL|Killed", complaints), complaints
    assert_goes_on(runtime, directory)


@needs_mpi
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("runtime", ["mpi", "torch"])
def test_a_rank_that_is_stopped_is_named_and_ends_the_job(tmp_path, monkeypatch, runtime, rank):
    monkeypatch.setenv("VELOCIRL_HANG_SECONDS", str(HANG))
    directory = tmp_path / "run"
    job = launch(runtime, *train(directory, *ENDLESS))
    pids = pids_of(job, 2, RANK[runtime])
    wait_for(lambda: checkpoints(directory))
    os.kill(pids[rank], signal.SIGSTOP)
    stopped = time.monotonic()
    code, _, complaints = finish(job, limit=90)
    assert code != 0
    # Twice as long where it was stopped between two iterations; and torchrun waits 30 s before it kills.
    assert time.monotonic() - stopped < 2 * HANG + SOON + (30 if runtime == "torch" else 0)
    assert f"rank {rank} of 2 (process {pids[rank]} on " in complaints
    assert re.search(r"has not been heard of for \d+ s, and the others wait for it: it was stopped", complaints)
    assert "hangs" not in complaints
    assert_all_ended(pids)
    monkeypatch.delenv("VELOCIRL_HANG_SECONDS")
    assert_goes_on(runtime, directory)


SLEEPY = """
import os, sys, time, gymnasium, numpy as np
from velocirl import PPO
own = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK")))
who, what = int(sys.argv[1]), sys.argv[2]
class Sleepy(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.steps += 1
        if what == "step" and own == who and self.steps == 300:
            time.sleep(1000)  # for ever, as far as anybody can tell
        return np.zeros(2, np.float32), 1.0, False, False, {}
gymnasium.register("Sleepy-v0", Sleepy, max_episode_steps=50)
agent = PPO("gym:Sleepy-v0", device="cpu", hidden=(8,), num_envs=4, horizon=16, seed=0, threads=1)
def wait(agent):
    if what == "callback" and agent.iterations == 3:
        time.sleep(10)  # as an evaluation may
agent.learn(64 * 20, wait)
"""


@needs_mpi
@pytest.mark.parametrize(("runtime", "rank"), [("mpi", 0), ("mpi", 1), ("torch", 1)])
def test_a_rank_whose_environment_hangs_says_where(tmp_path, monkeypatch, runtime, rank):
    monkeypatch.setenv("VELOCIRL_HANG_SECONDS", str(HANG))
    script = tmp_path / "sleepy.py"
    script.write_text(SLEEPY)
    code, _, complaints = finish(launch(runtime, script, rank, "step"), limit=90)
    assert code != 0
    assert re.search(rf"rank {rank} of 2 \(process \d+ on \S+\) hangs: the others have waited \d+ s for it", complaints)
    assert "time.sleep(1000)  # for ever" in complaints, complaints
    assert f"rank {1 - rank} of 2 (process" not in complaints


@needs_mpi
def test_a_callback_may_take_its_time(tmp_path, monkeypatch):
    monkeypatch.setenv("VELOCIRL_HANG_SECONDS", str(HANG))
    script = tmp_path / "sleepy.py"
    script.write_text(SLEEPY)
    code, _, complaints = finish(launch("mpi", script, 0, "callback"), limit=90)
    assert code == 0, complaints


@needs_mpi
def test_a_full_disk_ends_all_and_the_run_goes_on_when_there_is_room(tmp_path):
    """On a disk of its own, which somebody fills; more ranks than before go on, and say so."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        directory, filler = disk / "run", disk / "filler"
        job = start(2, *train(directory, *ENDLESS))
        pids = pids_of(job, 2)
        wait_for(lambda: checkpoints(directory))
        with filler.open("wb", buffering=0) as file:
            while shutil.disk_usage(disk).free:
                file.write(bytes(min(shutil.disk_usage(disk).free, 4096)) or b"0")
        filled = time.monotonic()
        code, _, complaints = finish(job, limit=60)
        assert code == 1
        assert time.monotonic() - filled < SOON
        assert re.search(r"cannot be saved at step .*No space left", complaints, re.DOTALL), complaints
        assert_all_ended(pids)
        filler.unlink()
        assert "this agent was trained by 2 ranks and goes on with 3" in assert_goes_on("mpi", directory, ranks=3)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@needs_mpi
@pytest.mark.parametrize("runtime", ["mpi", "torch"])
def test_two_jobs_on_one_machine_do_not_meet(tmp_path, runtime):
    """Each learns what it learns alone."""
    words = ["--total-steps", 128 * 50, "--quiet"]
    code, _, complaints = finish(launch(runtime, *train(tmp_path / "alone", *words)))
    assert code == 0, complaints
    jobs = [
        launch(runtime, *train(tmp_path / "same", *words)),
        launch(runtime, *train(tmp_path / "other", *words, "--seed", 6)),
    ]
    for job in jobs:
        code, _, complaints = finish(job)
        assert code == 0, complaints
    alone, same, other = (velocirl.load(tmp_path / name, best=False) for name in ("alone", "same", "other"))
    assert alone.parameters.tobytes() == same.parameters.tobytes()
    assert other.parameters.tobytes() != same.parameters.tobytes()


WRONG = """
from velocirl.training import ranks as company
company.LIMIT = 3.0
what = sys.argv[2]
if what == "version" and rank:
    company.version = lambda name: "0.0.1"
if what == "missing" and rank:
    sys.exit()
gamma = 0.5 if what == "settings" and rank else 0.9
make("ppo", "CartPole-v1", device="cpu", hidden=[8], num_envs=8, seed=0, gamma=gamma).learn(1000)
"""


@needs_mpi
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("version", r"rank 1 has velocirl='0\.0\.1' and rank 0 '.*': all ranks train the same agent, with the same"),
        ("settings", r"rank 1 has gamma=0\.5 and rank 0 0\.9: all ranks train the same agent"),
        ("missing", r"rank 0 of 2 has waited 3 s for the others: all ranks have to train the same agent"),
    ],
)  # fmt: skip
def test_wrong_launches_end_with_one_clear_message(tmp_path, what, message):
    script = tmp_path / "wrong.py"
    script.write_text(TELL + WRONG)
    code, output, complaints = finish(start(2, script, tmp_path, what), limit=60)
    assert code == 2
    assert len(re.findall(message, complaints)) == 1, complaints
    assert "Traceback" not in complaints
    assert output == ""
