"""Launcher detection: whether this process is one of several launched together, from the launcher's variables."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

LIMIT = 60.0  # seconds after which an absent rank is reported missing
DEFERENCE = 3.0  # seconds


class LaunchError(ValueError):
    """Ranks cannot train together; the message is one sentence with the reason and the remedy."""


@dataclass(frozen=True)
class Launch:
    """Job as seen by one of its processes."""

    runtime: str  # "mpi", "torch", or "local" without other processes
    rank: int
    size: int
    local_size: int  # processes on this machine
    launcher: str  # for messages
    local_rank: int = 0  # index among the processes on this machine


ALONE = Launch("local", 0, 1, 1, "")
# Variables of each launcher: number of processes, rank, number of processes on this machine, local rank. (A batch
# script of Slurm has SLURM_NTASKS too, but is one process; srun starts a step.)
LAUNCHERS = (
    ("torch", "torchrun", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
    *(
        ("mpi", "mpirun", f"{one}_SIZE", f"{one}_RANK", f"{one}_LOCAL_SIZE", f"{one}_LOCAL_RANK")
        for one in ("OMPI_COMM_WORLD", "MV2_COMM_WORLD")
    ),
    ("mpi", "mpirun", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("mpi", "srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID"),
)
ADDRESS = "MASTER_ADDR"  # torch's processes cannot find each other without it


def launch_of(runtime: str, environment: Mapping[str, str] = os.environ) -> Launch:
    """Return the job of a `runtime`, which a launcher may have started; else this process alone."""
    if runtime == "local":
        return ALONE
    found = _launch(environment)
    if runtime in ("auto", found.runtime) or found.size == 1:
        return found
    other = "mpirun" if runtime == "mpi" else "torchrun"
    raise LaunchError(
        f'runtime="{runtime}" is for processes of {other}, and {found.launcher} has started these {found.size}: leave'
        f" runtime out, or start them with {other}"
    )


def let_first_speak() -> None:
    """Delay a rank's error: if rank 0 has the same error, the launcher ends this rank meanwhile."""
    if _launch(os.environ).rank > 0:
        time.sleep(DEFERENCE)


def _launch(environment: Mapping[str, str]) -> Launch:
    for runtime, launcher, size, rank, local_size, local_rank in LAUNCHERS:
        if size not in environment or rank not in environment or (runtime == "torch" and ADDRESS not in environment):
            continue
        count = _whole(environment, size)
        if count > 1:
            local = environment.get(local_size, "")
            described = re.match(r"\d+", local)  # Slurm's may be 4(x2)
            near = int(described[0]) if described else count
            number, near = _whole(environment, rank), min(max(near, 1), count)
            local = _whole(environment, local_rank) if local_rank in environment else number % near
            return Launch(runtime, number, count, near, launcher, local)
    return ALONE


def _whole(environment: Mapping[str, str], name: str) -> int:
    value = environment[name]
    if not value.isdecimal():
        raise LaunchError(f"the environment variable {name} must be a whole number, got {value!r}")
    return int(value)
