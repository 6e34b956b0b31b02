"""Threaded runtime: threads that share a table."""

from __future__ import annotations

from typing import Any

from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.learner import FleetLearner, TableLearner, TabularTask
from velocirl.tabular.runtimes.pinning import cores_for, on_core
from velocirl.vector.native import FleetVectorEnv


def make_learner(agent: TabularAgent) -> TableLearner:
    """Create a learner with a fleet divided among threads."""
    source, seeds, threads = agent.source, agent.seeds, agent.config.workers or 1
    if source.native is None:
        raise ValueError(f'{source.id} steps in Python, which threads would share: use runtime="processes"')
    cores = cores_for(threads) if agent.config.pin else None
    envs: Any = source.make_copies(agent.num_envs, seed=seeds.environment, threads=threads, workers=0)
    if cores is None:
        return FleetLearner(agent.task, envs, seeds.policy)
    return PinnedFleetLearner(agent.task, envs, seeds.policy, cores)


class PinnedFleetLearner(FleetLearner):
    """Fleet learner that pins each thread to a core while it works."""

    def __init__(self, task: TabularTask, envs: FleetVectorEnv, seed: int, cores: list[int]) -> None:
        super().__init__(task, envs, seed)
        self._cores = cores

    def take_share(self, thread: int) -> None:
        """Take the thread's part, pinned to its core."""
        with on_core(self._cores[thread]):
            super().take_share(thread)
