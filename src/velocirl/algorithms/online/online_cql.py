"""Conservative Q-learning (Kumar et al., 2020) from steps: what CQL has learnt from data goes on by its own rule."""

from __future__ import annotations

from dataclasses import dataclass

from velocirl.algorithms.offline.cql import CQL, CQLSettings
from velocirl.algorithms.online.sac import SACConfig, act
from velocirl.networks import squashed
from velocirl.networks.heads import Head
from velocirl.training.off_policy import OffPolicyAgent


@dataclass(frozen=True)
class OnlineCQLConfig(CQLSettings, SACConfig):
    """The settings of CQL from steps. The preset of an environment replaces these defaults."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rule()


class OnlineCQL(OffPolicyAgent):
    """Conservative Q-learning from steps, with the networks and the update of CQL.

    `OnlineCQL("Pendulum-v1", prefill="pendulum.vds").continue_from(agent)`, where `agent` is a CQL agent.
    """

    name = "online-cql"
    Config = OnlineCQLConfig
    networks = CQL.networks
    Scratch = CQL.Scratch
    act, q_value = act, CQL.q_value
    update = CQL.update
    reports = CQL.reports

    def make_head(self) -> Head:
        """Return the head of a squashed Gaussian actor within the action bounds."""
        return squashed.squashed_gaussian(self.check_numbers())

    def numbers(self) -> dict[str, float]:
        """Return the initial temperature and the target entropy."""
        return self.config.entropy_numbers(-self.head.action_size)
