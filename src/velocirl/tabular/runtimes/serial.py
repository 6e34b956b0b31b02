"""One core."""

from __future__ import annotations

from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.host import HostMachine
from velocirl.tabular.machine import FleetMachine, TabularMachine
from velocirl.vector.native import FleetVectorEnv


def make_machine(agent: TabularAgent) -> TabularMachine:
    """A fleet on one thread, or Gymnasium's environments in this process."""
    seeds = agent.seeds
    envs = agent.source.make_copies(agent.num_envs, seed=seeds.environment, threads=1, workers=None)
    kind = FleetMachine if isinstance(envs, FleetVectorEnv) else HostMachine
    return kind(agent.lesson, envs, seeds.policy)  # pyright: ignore[reportArgumentType]
