"""Learners of a task, on the device that its configuration names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from velocirl.backends.batch.device import PythonDevice
from velocirl.backends.cpu.device import ThreadsDevice
from velocirl.engine.targets.device_names import number_of
from velocirl.learners.offline import OfflineLearner
from velocirl.learners.replay import ReplayLearner
from velocirl.learners.rollout import RolloutLearner
from velocirl.program.faults import tells_of_memory
from velocirl.program.reducing import shares_of
from velocirl.program.seeding import Seeds
from velocirl.program.sharing import even_shares, sharing_of_memory
from velocirl.program.task import Task


def make_replay(task: Task, max_steps: int, parameters: int, *, native: bool = False) -> ReplayLearner:
    """An off-policy learner; `native`: on CPU threads with native networks. On a GPU, recorded as graphs."""
    with tells_of_memory(task.config):
        learner = ReplayLearner(task, _device_of_batches(task, parameters, native=native), max_steps)
        learner.prepare()
        return learner


def make_offline(task: Task, parameters: int, *, native: bool = False) -> OfflineLearner:
    """A learner from data; `native`: on CPU threads with native networks. On a GPU, recorded as graphs."""
    with tells_of_memory(task.config):
        learner = OfflineLearner(task, _device_of_batches(task, parameters, native=native))
        learner.prepare()
        return learner


def make_rollout(
    task: Task, parameters: int, agents: Sequence[Seeds] = (), rewards: Any = None, *, native: bool = False
) -> RolloutLearner:
    """An on-policy learner; `native`: on CPU threads with native networks. On a GPU, recorded as graphs.

    With `agents`, as many learn together, each by its own seeds; the parameters of the task and `rewards`, which are
    the moments of rewards, have a row for each.
    """
    config = task.config
    with tells_of_memory(config):
        assert task.reward_moments is not None  # noqa: S101 - rollouts have them
        moments = task.reward_moments.state.T if rewards is None else rewards
        if native:
            threads = max(config.threads - config.overlap, 1)  # one core is for Python
            device: Any = ThreadsDevice(threads, len(shares_of(task.part.copies, config.shares)))
        else:
            device = make_device(config, config.batch // config.num_minibatches * parameters)
        learner = RolloutLearner(task, device, agents or [task.seeds], moments)
        learner.prepare()
        return learner


def make_device(config: Any, work: int) -> Any:
    """The device of a configuration, for minibatches of so much work: rows times parameters."""
    if config.device == "python":
        return PythonDevice()
    from velocirl.backends.torch.device import CUDADevice, TorchCPUDevice  # needs torch

    if config.device == "cpu":
        return TorchCPUDevice(config.threads, config.precision, work)
    captures = os.environ.get("VELOCIRL_CUDA_GRAPHS", "1") != "0"
    return CUDADevice(config.precision, captures=captures, number=number_of(config.device))


def _device_of_batches(task: Task, parameters: int, *, native: bool) -> Any:
    config = task.config
    if not native:
        return make_device(config, config.batch_size * parameters)
    first, stop = even_shares(config.effective_batch_size, task.reducer.size)[task.reducer.rank]
    if task.recorded is None:
        sharing = sharing_of_memory(config.num_envs, config.effective_batch_size, task.reducer.size)
        first, stop = sharing.streams[task.reducer.rank]
    return ThreadsDevice(config.threads, min(config.shares, stop - first))
