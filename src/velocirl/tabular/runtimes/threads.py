"""Threads that share a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.learner import FleetLearner, TableLearner, TabularTask
from velocirl.tabular.runtimes.pinning import cores_for, on_core
from velocirl.vector.native import FleetVectorEnv


def make_learner(agent: TabularAgent) -> TableLearner:
    """A fleet, shared out to threads."""
    source, seeds, threads = agent.source, agent.seeds, agent.config.workers or 1
    if source.native is None:
        raise ValueError(f'{source.id} steps in Python, which threads would share: use runtime="processes"')
    cores = cores_for(threads) if agent.config.pin else None
    envs: Any = source.make_copies(agent.num_envs, seed=seeds.environment, threads=threads, workers=0)
    if cores is None:
        return FleetLearner(agent.task, envs, seeds.policy)
    return PinnedFleetLearner(agent.task, envs, seeds.policy, cores)


class PinnedFleetLearner(FleetLearner):
    """A fleet each of whose threads keeps to a core while it works."""

    def __init__(self, task: TabularTask, envs: FleetVectorEnv, seed: int, cores: list[int]) -> None:
        super().__init__(task, envs, seed)
        tallies = [id(current.tally) for current in self.current]
        self._run = pinned(self._run, dict(zip(tallies, cores, strict=True)))


def pinned(run: Callable[..., Any], cores: dict[int, int]) -> Callable[..., Any]:
    """`run(copies, table, current, ...)` on the core that these current' tally stands for."""

    def run_on_core(copies: Any, table: Any, current: Any, *more: Any) -> None:
        with on_core(cores[id(current.tally)]):
            run(copies, table, current, *more)

    return run_on_core
