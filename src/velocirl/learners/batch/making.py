"""Which batch learner trains a task, on which device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from velocirl.engine.targets.device_names import number_of
from velocirl.learners.batch.devices.device import PythonDevice
from velocirl.learners.batch.offline import BatchOffline
from velocirl.learners.batch.overlap.overlapping import OverlappingReplay
from velocirl.learners.batch.replay import BatchReplay
from velocirl.learners.batch.rollout import BatchRollout
from velocirl.learners.faults import tells_of_memory
from velocirl.learners.seeding import Seeds
from velocirl.learners.task import Task


def make_replay(task: Task, most_steps: int, parameters: int) -> BatchReplay:
    """A learner from a memory; on a GPU, captured as graphs."""
    config = task.config
    make = OverlappingReplay if config.overlap else BatchReplay
    with tells_of_memory(config):
        learner = make(task, make_device(config, config.batch_size * parameters), most_steps)
        learner.prepare()
        return learner


def make_offline(task: Task, parameters: int) -> BatchOffline:
    """A learner from data; on a GPU, captured as graphs."""
    config = task.config
    with tells_of_memory(config):
        learner = BatchOffline(task, make_device(config, config.batch_size * parameters))
        learner.prepare()
        return learner


def make_rollout(task: Task, parameters: int, agents: Sequence[Seeds] = (), rewards: Any = None) -> BatchRollout:
    """A learner from rollouts; on a GPU, captured as graphs.

    With `agents`, as many learn together, each by its own seeds; the parameters of the task and `rewards`, which are
    the moments of rewards, have a row for each.
    """
    config = task.config
    with tells_of_memory(config):
        assert task.reward_moments is not None  # noqa: S101 - rollouts have them
        moments = task.reward_moments.state.T if rewards is None else rewards
        device = make_device(config, config.batch // config.num_minibatches * parameters)
        learner = BatchRollout(task, device, agents or [task.seeds], moments)
        learner.prepare()
        return learner


def make_device(config: Any, work: int) -> Any:
    """The device of a configuration, for minibatches of so much work: rows times parameters."""
    if config.device == "python":
        return PythonDevice()
    from velocirl.learners.batch.devices import torch_device  # needs torch

    if config.device == "cpu":
        return torch_device.TorchCPUDevice(config.threads, config.precision, work)
    captures = os.environ.get("VELOCIRL_CUDA_GRAPHS", "1") != "0"
    return torch_device.CUDADevice(config.precision, captures=captures, number=number_of(config.device))
