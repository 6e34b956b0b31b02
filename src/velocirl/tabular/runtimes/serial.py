"""Serial runtime: one core."""

from __future__ import annotations

from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.host import HostLearner
from velocirl.tabular.learner import FleetLearner
from velocirl.vector.native import FleetVectorEnv


def make_learner(agent: TabularAgent) -> FleetLearner | HostLearner:
    """Create a learner: a fleet on one thread, or Gymnasium environments in this process."""
    seeds = agent.seeds
    envs = agent.source.make_copies(agent.num_envs, seed=seeds.environment, threads=1, workers=0)
    kind = FleetLearner if isinstance(envs, FleetVectorEnv) else HostLearner
    return kind(agent.task, envs, seeds.policy)  # pyright: ignore[reportArgumentType]
