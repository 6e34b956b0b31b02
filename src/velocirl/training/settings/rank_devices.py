"""Devices of ranks: one GPU of a machine for each rank, as far as there are enough."""

from __future__ import annotations

import dataclasses

from velocirl.engine.targets.device_names import kind_of, number_of
from velocirl.program.reducing import Reducer
from velocirl.program.task import Task
from velocirl.scale.launching import Launch
from velocirl.scale.ranks import Ranks
from velocirl.training.settings.device_choice import gpus, require_device


def task_of_rank(task: Task, ranks: Ranks, launch: Launch) -> Task:
    """Return a rank's part of a task, on its own device."""
    if kind_of(task.config.device) != "cuda":
        return dataclasses.replace(task, reducer=ranks)
    require_device(task.config.device)
    number = number_of(task.config.device)
    if number is None:
        number = launch.local_rank % gpus()
    config = dataclasses.replace(task.config, device=f"cuda:{number}")
    return dataclasses.replace(task, config=config, reducer=_reducer(ranks, launch, number))


def _reducer(ranks: Ranks, launch: Launch, number: int) -> Reducer:
    """Return the all-reduce: NCCL if torch started the ranks and none shares its GPU, else through host memory."""
    if launch.runtime != "torch":
        return ranks
    from velocirl.scale.nccl import NCCLReducer, have_own_gpus  # needs torch

    return NCCLReducer(ranks, number) if have_own_gpus(ranks, number) else ranks
