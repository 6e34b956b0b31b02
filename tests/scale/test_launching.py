"""What launchers tell their processes, and which of that is believed."""

import os
import subprocess
import sys

import pytest

from velocirl.scale import ranks
from velocirl.scale.launching import ALONE, Launch, LaunchError, launch_of
from velocirl.scale.ranks import ranks_of

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
TORCHRUN = {"WORLD_SIZE": "8", "RANK": "5", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
SRUN = {"SLURM_NTASKS": "6", "SLURM_STEP_NUM_TASKS": "6", "SLURM_PROCID": "1", "SLURM_STEP_TASKS_PER_NODE": "3(x2)"}


@pytest.mark.parametrize(
    ("variables", "launch"),
    [
        ({}, ALONE),
        (OPEN_MPI, Launch("mpi", 3, 4, 2, "mpirun", 1)),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, Launch("mpi", 3, 4, 2, "mpirun", 0)),
        ({"PMI_SIZE": "3", "PMI_RANK": "0", "MPI_LOCALNRANKS": "1"}, Launch("mpi", 0, 3, 1, "mpirun")),
        ({"PMI_SIZE": "3", "PMI_RANK": "0"}, Launch("mpi", 0, 3, 3, "mpirun")),
        (TORCHRUN, Launch("torch", 5, 8, 4, "torchrun", 1)),
        ({**TORCHRUN, "LOCAL_RANK": "3"}, Launch("torch", 5, 8, 4, "torchrun", 3)),
        (SRUN, Launch("mpi", 1, 6, 3, "srun", 1)),
        ({**SRUN, "SLURM_LOCALID": "2"}, Launch("mpi", 1, 6, 3, "srun", 2)),
        ({**OPEN_MPI, **TORCHRUN}, Launch("torch", 5, 8, 4, "torchrun", 1)),
        # A batch script has as many tasks as its steps may have, and is one process.
        ({"SLURM_NTASKS": "6", "SLURM_PROCID": "0"}, ALONE),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "1"}, ALONE),
        ({"WORLD_SIZE": "8", "RANK": "5"}, ALONE),
    ],
)
def test_a_launcher_is_recognised_by_its_variables(variables, launch):
    assert launch_of("auto", variables) == launch
    assert launch_of("local", variables) == ALONE


def test_a_runtime_that_is_said_is_that_of_the_launcher():
    assert launch_of("mpi", OPEN_MPI).size == 4
    assert launch_of("torch", TORCHRUN).size == 8
    assert launch_of("mpi", {}) == launch_of("torch", {}) == ALONE
    with pytest.raises(LaunchError, match='runtime="mpi" is for processes of mpirun, and torchrun has started these 8'):
        launch_of("mpi", TORCHRUN)
    with pytest.raises(LaunchError, match='runtime="torch" is for processes of torchrun, and mpirun has started'):
        launch_of("torch", OPEN_MPI)
    with pytest.raises(LaunchError, match="PMI_RANK must be a whole number, got 'x'"):
        launch_of("auto", {"PMI_SIZE": "2", "PMI_RANK": "x"})


@pytest.mark.parametrize(("runtime", "package"), [("mpi", "mpi4py"), ("torch", "torch")])
def test_what_is_not_installed_is_named(monkeypatch, runtime, package):
    monkeypatch.setattr(ranks, "find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=f"started 4 processes, which cannot train together without {package}: pip"):
        ranks_of(Launch(runtime, 0, 4, 4, "mpirun"))


def test_a_launcher_of_another_mpi_is_refused():
    """Each process would be the only one of its own world, and all would write the same run."""
    pytest.importorskip("mpi4py")
    command = [sys.executable, "-m", "velocirl", "train", "CartPole-v1", "--total-steps", "1000"]
    variables = {**os.environ, "PMI_SIZE": "4", "PMI_RANK": "0"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "mpirun has started 4 processes, and MPI knows of 1: mpi4py uses another MPI" in done.stderr
