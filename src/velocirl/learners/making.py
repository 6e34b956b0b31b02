"""Creation of a task's learner on the device that its configuration names."""

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
    """Create an off-policy learner; `native`: on CPU threads with native networks. On a GPU, captured as graphs."""
    with tells_of_memory(task.config):
        learner = ReplayLearner(task, _device_of_batches(task, parameters, native=native), max_steps)
        learner.prepare()
        return learner


def make_offline(task: Task, parameters: int, *, native: bool = False) -> OfflineLearner:
    """Create an offline learner; `native`: on CPU threads with native networks. On a GPU, captured as graphs."""
    with tells_of_memory(task.config):
        learner = OfflineLearner(task, _device_of_batches(task, parameters, native=native))
        learner.prepare()
        return learner


def make_rollout(
    task: Task, parameters: int, agents: Sequence[Seeds] = (), rewards: Any = None, *, native: bool = False
) -> RolloutLearner:
    """Create an on-policy learner; `native`: on CPU threads with native networks. On a GPU, captured as graphs.

    With several `agents`, all learn together, each with its own seeds. The task's parameters and the reward moments
    `rewards` then have one row per agent.
    """
    config = task.config
    with tells_of_memory(config):
        assert task.reward_moments is not None  # noqa: S101 - rollouts have them
        moments = task.reward_moments.state.T if rewards is None else rewards
        if native:
            threads = max(config.threads - config.overlap, 1)  # with overlap, one core is left for Python
            device: Any = ThreadsDevice(threads, len(shares_of(task.part.copies, config.shares)))
        else:
            device = make_device(config, config.batch // config.num_minibatches * parameters)
        learner = RolloutLearner(task, device, agents or [task.seeds], moments)
        learner.prepare()
        return learner


def make_device(config: Any, work: int) -> Any:
    """Return the device of a configuration, for minibatches whose rows times parameters are `work`."""
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
