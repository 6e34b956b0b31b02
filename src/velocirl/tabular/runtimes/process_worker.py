"""Worker process: some of the environments, updating a table that all processes share."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.environment import Environment
from velocirl.program.seeding import Seeds
from velocirl.tabular.host import HostLearner
from velocirl.tabular.learner import FleetLearner, TabularTask
from velocirl.tabular.loop import Current, Pace
from velocirl.tabular.runtimes.pinning import pin_process
from velocirl.tabular.runtimes.process_memory import attach
from velocirl.tabular.runtimes.process_setup import Setup
from velocirl.tabular.tables.table import Table
from velocirl.vector.host import worker_process
from velocirl.vector.host.copies import Source as Makers
from velocirl.vector.host.interface import copy_seeds
from velocirl.vector.host.vector_env import HostVectorEnv
from velocirl.vector.host.worker_process import read_payload
from velocirl.vector.making import GYMNASIUM
from velocirl.vector.native import FleetVectorEnv

ATTACH, TAKE, STATE, LOAD = b"a", b"t", b"s", b"l"


@dataclass(frozen=True)
class SharedLesson(TabularTask):
    """Task in which several processes update one table, and report in shared memory."""

    tally: NDArray[np.float64]
    episodes: NDArray[Any]
    counters: NDArray[np.int64]

    def settling(self, *, shared: bool = True) -> Callable[..., Any]:  # noqa: ARG002 - it is
        """Compose what follows the steps of a round; others may add rows at the same time."""
        return super().settling(shared=True)

    def current(self, count: int, streams: NDArray[np.uint64]) -> Current:
        """Allocate the arrays of `count` environments; those that are reported lie in shared memory."""
        own = super().current(count, streams)
        return own._replace(tally=self.tally, episodes=self.episodes, counters=self.counters)


class Part(Protocol):
    """Interface of a learner that takes some of the rounds."""

    def begin(self, rate: float) -> None:
        """Begin the first episodes, unless they have begun."""
        ...

    def take_rounds(self, pace: Pace, work: NDArray[np.int64]) -> None:
        """Take rounds until all are taken, or the table is full."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what determines the next rounds, except the table."""
        ...

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the result of `state`."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


class FleetPart(FleetLearner):
    """Learner on some environments of a fleet."""

    def __init__(self, task: TabularTask, envs: FleetVectorEnv, seeds: Seeds, copies: range) -> None:
        super().__init__(task, envs, seeds.policy)
        self._rng[:] = random.streams(seeds.policy, copies.stop)[copies.start :]
        envs.copies.rng[:] = random.streams(seeds.environment, copies.stop)[copies.start :]
        envs.reset()

    def begin(self, rate: float) -> None:
        """Choose for the first time, unless that was done."""
        if not self._begun:
            self._shares[0].begin(self._table.arrays, rate)
            self._begun = True

    def take_rounds(self, pace: Pace, work: NDArray[np.int64]) -> None:
        """Take rounds until all are taken, or the table is full."""
        share = self._shares[0]
        share.pace[0] = tuple(pace)
        share.rounds(self._table.arrays, work)(0, 0)


class Worker(worker_process.Worker):
    """Worker that learns on commands of its parent."""

    learner: Part | None = None

    def start(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - there is nothing to describe
        """Create the environments and compile everything."""
        setup: Setup = pickle.loads(read_payload(self.commands))  # noqa: S301 - from the parent
        if setup.core is not None:
            pin_process(setup.core)
        regions = setup.tally, setup.episodes, setup.counters, setup.work
        tally, episodes, counters, self.work = (attach(self.memory, each) for each in regions)
        environment: Makers | Environment = pickle.loads(setup.environment)[0]  # noqa: S301
        if isinstance(environment, EnvSpec):
            gymnasium.registry[environment.id] = environment  # its registration may not be imported here
        name = GYMNASIUM + environment.id if isinstance(environment, EnvSpec) else environment
        name = name[0] if isinstance(name, list) else name  # a list's environments have the same spaces
        agent = setup.algorithm(name, **setup.config)
        task = agent.task
        given = {field.name: getattr(task, field.name) for field in fields(task)}
        task = SharedLesson(**given, tally=tally, episodes=episodes, counters=counters)
        self.table, copies, seeds = task.table, setup.copies, setup.seeds
        if isinstance(environment, Environment):
            fleet = FleetVectorEnv(environment, len(copies), seed=0, threads=1, params=agent.source.params, copy=False)
            self.learner = FleetPart(task, fleet, seeds, copies)
        else:
            own = copy_seeds(seeds.environment, copies.stop)[copies.start :]
            host = HostVectorEnv(
                environment, len(copies), seed=own, copy=False, first=copies.start, **agent.source.params
            )
            self.learner = HostLearner(task, host, seeds.policy, copies.start)

    def answer(self, command: bytes) -> bytes | None:
        """Carry out one command. Returns the reply, if any."""
        if self.learner is None:
            raise RuntimeError("a worker cannot work before it has started")
        if command == STATE:
            return pickle.dumps(self.learner.state())
        payload = pickle.loads(read_payload(self.commands))  # noqa: S301 - from the parent
        if command == ATTACH:
            self.table.arrays = Table(*(attach(self.memory, region) for region in payload))
        elif command == LOAD:
            self.learner.load_state(payload)
        else:
            pace = Pace(*payload)
            self.learner.begin(pace.rate)
            self.learner.take_rounds(pace, self.work)
        return None

    def current(self) -> int:
        """Return -1: the traceback names the environment that raised."""
        return -1

    def close(self) -> None:
        """Close the environments."""
        if self.learner is not None:
            self.learner.close()
