"""Collector setup: its part of the task and the environment, as bytes from its parent process."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from velocirl.collect.collectors.board import Plan
from velocirl.program.task import Task
from velocirl.vector.host.interface import HostInterface, copy_seeds, find_source
from velocirl.vector.host.worker_handle import pickle_source, pickled_by_value
from velocirl.vector.making import make_host
from velocirl.vector.preprocessing.switches import text_of


class Setup(NamedTuple):
    """Setup of one collector process."""

    task: Task  # with the acting network only
    plan: Plan
    number: int  # of this collector
    start: int  # number of earlier starts of this collector


class Carried:
    """Environment source in a collector process: the part of `training.source.Source` that learners use."""

    native = None  # steps in Python
    ready = tensors_on = None  # is created again, on the host

    def __init__(self, source: Any, environment: bytes, copies: range, entropy: Any) -> None:
        self._environment, self._copies, self._entropy = environment, copies, entropy
        self.id, self.action_space, self.observation_space = source.id, source.action_space, source.observation_space
        self.stored, self.stack, self._own_threads = source.stored, source.stack, source.own_threads

    def make_copies(self, num_envs: int, **_: Any) -> HostInterface:
        """Create the environments of one collector, each with its seed among all collectors' environments."""
        source, options, _ = pickle.loads(self._environment)  # noqa: S301 - from the parent
        own = self._copies
        seeds = copy_seeds(self._entropy, own.stop)[own.start :]
        place = {"threads": 1} if self._own_threads else {"first": own.start}
        return make_host(source, num_envs, None, seed=seeds, copy=False, **place, **options)


def environment_bytes(source: Any) -> bytes:
    """Return the environment as bytes from which any process can create it. Raises ValueError if there are none."""
    try:
        if not source.makers or source.ready is not None:
            raise ValueError("it is made already")
        options = {**source.made_with, "preprocess": None if source.preprocess is None else text_of(source.preprocess)}
        return pickle_source(find_source(source.makers), options)
    except ValueError as error:
        raise ValueError(
            f"{source.id} cannot be carried into the processes of collectors ({error}): give its id or a function that"
            " makes it from what it can import, or leave collectors out"
        ) from error


def setup_bytes(task: Task, plan: Plan, number: int, environment: bytes, start: int) -> bytes:
    """Return the setup of one collector as bytes."""
    acting, copies, seed = task.acting, plan.shape.copies, task.seeds.environment
    entropy = seed if start == 0 else [seed, number, start]  # a replacement process gets other seeds
    own = dataclasses.replace(
        task,
        config=dataclasses.replace(task.config, num_envs=copies, collectors=None, workers=0, threads=1),
        source=Carried(task.source, environment, range(number * copies, (number + 1) * copies), entropy),
        networks={acting: task.networks[acting]},
        built={acting: task.built[acting]},
        parameters={acting: np.zeros_like(task.parameters[acting])},
        number_starts={},
        program=None,  # pyright: ignore[reportArgumentType] - nothing is learnt there
        estimates=(),
        decisions=(),
        reestimates=(),
        before_epoch=None,
        phases={},
    )
    with pickled_by_value(task.act.function):
        return cloudpickle.dumps(Setup(own, plan, number, start))
