"""Jobs for tests: real ranks under a real mpirun or torchrun, with time limits."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
MISSING = MPIRUN is None or importlib.util.find_spec("mpi4py") is None
needs_mpi = pytest.mark.skipif(MISSING, reason='needs mpi4py and mpirun: pip install "velocirl[mpi]"')
COMMAND = ["-c", "from velocirl.cli.main import main; main()"]
LIMIT = 120  # seconds; much has to be compiled the first time
# Open MPI warns of root and of more ranks than cores; here neither matters.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
started = []  # the jobs
# A training that is short as far as its network is concerned.
SHORT = ["--num-envs", "8", "--horizon", "16", "--threads", "1", "--hidden", "8", "--seed", "5", "--device", "cpu"]
# A script's beginning: what each rank finds out goes into a file of its own.
TELL = """
import hashlib, json, sys, velocirl
from pathlib import Path
from mpi4py import MPI
from velocirl.algorithms import load_algorithms
from velocirl.training.persistence import algorithm_from
load_algorithms()
rank, ranks, directory = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, Path(sys.argv[1])
def make(name, environment, **settings):
    return algorithm_from(name)(environment, **settings)
def digest(agent):
    return hashlib.sha256(agent.table.values.tobytes()).hexdigest()
def tell(**facts):
    (directory / f"{rank}.json").write_text(json.dumps(facts))
"""


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch, keep_runs_at):
    """Runs are kept here, while the compile cache stays the user's own."""
    for name, value in keep_runs_at(tmp_path / "data").items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def nothing_left():
    """A job that a test leaves behind ends with it."""
    yield
    while started:
        with started.pop() as job:
            job.kill()


def start(ranks, *arguments):
    """A job of so many ranks, each a Python with these arguments."""
    command = [MPIRUN, "-n", str(ranks), sys.executable, *map(str, arguments)]
    environment, pipe = {**os.environ, **SETTINGS}, subprocess.PIPE
    started.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
    return started[-1]


def torchrun(*arguments, ranks=2):
    """The same by torchrun, on a port of their own."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--rdzv-backend", "c10d"]
    command, pipe = [*launcher, "--rdzv-endpoint", "localhost:0", *map(str, arguments)], subprocess.PIPE
    started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
    return started[-1]


def finish(job, limit=LIMIT):
    """Its exit code, output and complaints; who takes too long is killed, and fails."""
    try:
        output, complaints = job.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        job.kill()
        output, complaints = job.communicate()
        raise AssertionError(f"not finished in {limit} s: {output}{complaints}") from None
    return job.returncode, output, complaints


def tell_of(ranks, directory, text):
    """Run a script on so many ranks; what each of them told."""
    path = directory / "script.py"
    path.write_text(TELL + text)
    code, output, complaints = finish(start(ranks, path, directory))
    assert code == 0, output + complaints
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(ranks)]


def pids_of(job, ranks, variable=b"OMPI_COMM_WORLD_RANK="):
    """The processes of the ranks of a job, by their number."""
    found = {}
    until = time.monotonic() + LIMIT
    while len(found) < ranks and time.monotonic() < until:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                rank = _rank_under(entry, job.pid, variable)
                if rank is not None:
                    found[rank] = int(entry.name)
        time.sleep(0.05)
    return found


def _rank_under(process, parent, variable):
    try:
        if int((process / "stat").read_text().rpartition(")")[2].split()[1]) != parent:
            return None
        words = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return None
    return next((int(word.partition(b"=")[2]) for word in words if word.startswith(variable)), None)


def train(directory, *more):
    """The words that train in a run."""
    return [*COMMAND, "train", "CartPole-v1", *SHORT, "--run-dir", directory, *more]


def wait_for(condition, limit=LIMIT):
    """Until something is so, which it must become."""
    until = time.monotonic() + limit
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    assert condition()
