"""A source tree on the path without an installation: there is no metadata of a package velocirl."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from ranks import COMMAND, SHORT, finish, needs_mpi, start

import velocirl

SOURCE = Path(velocirl.__file__).parents[1]
WHAT_IS_THERE = """
import importlib.metadata, velocirl
try:
    print(importlib.metadata.version("velocirl"))
except importlib.metadata.PackageNotFoundError:
    print("no metadata", velocirl.__file__)
"""


@pytest.fixture
def source_tree(tmp_path, monkeypatch):
    """Let processes started with -S find the packages of this environment, and velocirl by its source alone."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "velocirl" not in path.name.lower() and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    monkeypatch.setenv("PYTHONPATH", f"{SOURCE}:{packages}")


def run(*arguments):
    done = subprocess.run([sys.executable, "-S", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("source_tree")
def test_a_run_and_a_benchmark_have_the_version(tmp_path):
    assert run("-c", WHAT_IS_THERE).split() == ["no", "metadata", velocirl.__file__]
    run(*COMMAND, "train", "CartPole-v1", *SHORT, "--total-steps", "256", "--run-dir", str(tmp_path / "run"), "--quiet")
    versions = json.loads((tmp_path / "run" / "run.json").read_text())["versions"]
    assert versions["velocirl"] == velocirl.__version__
    assert versions.keys() == {"python", "velocirl", "numpy", "numba"}
    facts = "from velocirl.bench.machine.facts import this_machine; print(this_machine().versions['velocirl'])"
    assert run("-c", facts).strip() == velocirl.__version__


@needs_mpi
@pytest.mark.usefixtures("source_tree")
def test_ranks_train(tmp_path):
    words = [*COMMAND, "train", "CartPole-v1", *SHORT, "--total-steps", "256", "--run-dir", tmp_path / "run", "--quiet"]
    code, output, complaints = finish(start(2, "-S", *words))
    assert code == 0, output + complaints
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"
