"""Implicit Q-learning (Kostrikov et al., 2021) from steps: what IQL has learnt from data goes on by its own rule."""

from __future__ import annotations

from dataclasses import dataclass

from velocirl.algorithms.offline.iql import IQL, IQLSettings
from velocirl.networks import squashed
from velocirl.networks.heads import Head
from velocirl.training.off_policy import NoisyConfig, OffPolicyAgent


@dataclass(frozen=True)
class OnlineIQLConfig(IQLSettings, NoisyConfig):
    """The settings of IQL from steps. The preset of an environment replaces these defaults."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rule()


def act(head, actor, row, mask, exploration, noise, settings, rng):
    """Sample an action from the policy, with added noise if `exploration` is above 0."""
    head.sample(actor, mask, rng, row.action)
    if exploration > 0.0:
        squashed.add_noise(exploration, settings.noise_correlation, rng, noise, row.action)


class OnlineIQL(OffPolicyAgent):
    """Implicit Q-learning from steps, with the networks and the update of IQL.

    `OnlineIQL("Pendulum-v1", prefill="pendulum.vds").continue_from(agent)`, where `agent` is an IQL agent.
    """

    name = "online-iql"
    Config = OnlineIQLConfig
    networks = IQL.networks
    Scratch = IQL.Scratch
    act, q_value, state_value = act, IQL.q_value, IQL.state_value
    update = IQL.update
    reports = IQL.reports

    def make_head(self) -> Head:
        """Return the head of a Gaussian with means within the action bounds, clipped to them."""
        return squashed.gaussian_within(self.check_numbers())
