"""docs/scale.md and the files it names: commands that exist, code that runs, and jobs that begin and go on."""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ranks import MPIRUN, SETTINGS, finish, needs_mpi, start

from velocirl.cli.resume import _parser as resume_parser
from velocirl.cli.settings import read_request
from velocirl.runs.directory import open_run
from velocirl.scale.launching import Launch, launch_of

ROOT = Path(__file__).parents[2]
PAGE, SLURM, KUBERNETES = (ROOT / name for name in ("docs/scale.md", "examples/slurm.sh", "examples/kubernetes.yaml"))
SMALL = {
    "65536": "8", "32768": "8", "262144": "64", "131072": "64", "1000000000": "12800", "50000000": "6400",
    "--threads 8": "--threads 1", "--total-steps": "--horizon 16 --hidden 8 --device cpu --quiet --total-steps",
}  # fmt: skip


def commands(text):
    """The words after `velocirl` of each command in a text."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line for line in joined.splitlines() if re.search(r"\bvelocirl (train|resume|doctor) ", line)]
    return [shlex.split(re.split(r"\bvelocirl (?=train|resume|doctor)", line)[1]) for line in lines]


def manifests():
    return {one["kind"]: one for one in yaml.safe_load_all(KUBERNETES.read_text())}


def container():
    return manifests()["Job"]["spec"]["template"]["spec"]["containers"][0]


def small(text):
    for written, instead in SMALL.items():
        text = text.replace(written, instead)
    return text


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("\n".join(re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)), 5),
        (SLURM.read_text(), 2),
        (container()["args"][0], 2),
    ],
    ids=["page", "slurm", "kubernetes"],
)
def test_commands_are_those_of_the_command_line(text, known):
    found = commands(text)
    assert len(found) == known
    for name, *rest in found:
        if name == "train":
            assert read_request(rest).environment == "CartPole-v1"
        elif name == "resume":
            assert resume_parser().parse(rest)["run"]
        else:
            assert (name, rest) == ("doctor", ["--distributed"])


def test_what_the_launchers_of_the_examples_say_is_understood():
    options = dict(re.findall(r"#SBATCH --([\w-]+)=(\S+)", SLURM.read_text()))
    nodes, each = int(options["nodes"]), int(options["ntasks-per-node"])
    step = {"SLURM_STEP_NUM_TASKS": str(nodes * each), "SLURM_PROCID": "17", "SLURM_LOCALID": "1"}
    found = launch_of("auto", {**step, "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{nodes})"})
    assert (found.runtime, found.rank, found.size, found.local_size) == ("mpi", 17, 64, 16)
    assert launch_of("auto", {"SLURM_NTASKS": "64", "SLURM_PROCID": "0"}).size == 1  # the script itself
    said = {one["name"]: one["value"] for one in container()["env"]}
    assert launch_of("auto", {**said, "RANK": "3"}) == Launch("torch", 3, 4, 1, "torchrun")


def test_the_pods_are_as_many_as_they_think_and_find_the_first():
    job, service = manifests()["Job"], manifests()["Service"]
    said = {one["name"]: one["value"] for one in container()["env"]}
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(said["WORLD_SIZE"])
    name, domain = job["metadata"]["name"], spec["template"]["spec"]["subdomain"]
    assert said["MASTER_ADDR"] == f"{name}-0.{domain}"
    assert service["metadata"]["name"] == domain
    assert service["spec"] == {"clusterIP": "None", "selector": {"job-name": name}}
    assert said["RUN"].startswith(container()["volumeMounts"][0]["mountPath"])
    assert (
        int(container()["resources"]["limits"]["cpu"])
        == read_request(commands(container()["args"][0])[1][1:]).values["threads"]
    )


@pytest.fixture
def variables(tmp_path, keep_runs_at):
    """Variables with a PATH whose `velocirl` is this one, and whose `srun` starts two ranks of mpirun."""
    place = tmp_path / "bin"
    place.mkdir()
    scripts = {
        "velocirl": f'exec {sys.executable} -m velocirl "$@"',
        "srun": f'shift\nexec {MPIRUN} -n 2 "$@"',
    }
    for name, text in scripts.items():
        (place / name).write_text(f"#!/bin/bash\n{text}\n")
        (place / name).chmod(0o755)
    path = f"{place}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **SETTINGS, **keep_runs_at(tmp_path / "data"), "PATH": path, "RUN": str(tmp_path / "run")}


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(script(), str(PAGE), "exec"), {})  # our own page
    assert open_run(tmp_path / "runs/cartpole").description.status == "finished"
    assert (tmp_path / "cartpole.safetensors").exists()


def script():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for written, instead in {"num_envs=4096": "num_envs=8, horizon=16, hidden=(8,)", "2_000_000": "1280"}.items():
        assert code.count(written) == 1
        code = code.replace(written, instead)
    return code


@needs_mpi
@pytest.mark.slow
def test_the_code_of_the_page_runs_on_ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(script())
    code, _, complaints = finish(start(2, tmp_path / "script.py"))
    assert code == 0, complaints
    assert open_run(tmp_path / "runs/cartpole").checkpoints().latest().state.document["ranks"] == 2


@needs_mpi
@pytest.mark.slow
def test_the_script_for_slurm_begins_and_goes_on(tmp_path, variables):
    """With an srun that starts two ranks on this machine."""
    run = tmp_path / "run"
    for said in ("", "is finished, after 12,800 steps"):
        done = subprocess.run(
            ["bash", "-c", small(SLURM.read_text())], env=variables, timeout=120, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
        assert open_run(run).checkpoints().latest().step == 12_800


@pytest.mark.slow
def test_the_pods_begin_and_go_on(tmp_path, variables):
    """As two processes of this machine; what an attempt without a checkpoint has left is in nobody's way."""
    pytest.importorskip("torch")
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    said = {one["name"]: one["value"] for one in container()["env"]}
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    here = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    variables = {**said, **variables, **here}
    for words in ("", "is finished, after 12,800 steps"):
        command = [*container()["command"], small(container()["args"][0])]
        pods = [
            subprocess.Popen(command, env={**variables, "JOB_COMPLETION_INDEX": str(rank)}, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
            for rank in range(2)
        ]  # fmt: skip
        ends = [finish(pod) for pod in pods]
        assert [code for code, _, _ in ends] == [0, 0], ends
        assert words in ends[0][1]
        assert open_run(run).checkpoints().latest().step == 12_800
