"""Behavioural cloning of a single choice: a classifier of what the data chose."""

from __future__ import annotations

from dataclasses import dataclass

from velocirl.algorithms.online.discrete_sac import logits
from velocirl.networks.declared import Network
from velocirl.networks.heads import Head, categorical
from velocirl.program.stages import backward, each, forward, step
from velocirl.training.offline import OfflineAgent, OfflineConfig


@dataclass(frozen=True)
class DiscreteBCConfig(OfflineConfig):
    """The settings of discrete behavioural cloning. The preset of an environment replaces these defaults."""


def imitation_gradient(head, actor, row, gradient, metrics):
    """-log pi(a|s)"""
    log_probability, entropy = head.evaluate(actor, row.mask, row.action, gradient)
    head.backward(actor, row.mask, row.action, -1.0, 0.0, gradient)
    metrics.loss -= log_probability
    metrics.entropy += entropy


class DiscreteBC(OfflineAgent):
    """Behavioural cloning of a choice: choose as the data did.

    loss = -log pi(a|s). `DiscreteBC("CartPole-v1", data="cart.vds").learn(20_000)` makes so many updates.
    """

    name = "discrete-bc"
    Config = DiscreteBCConfig
    networks = {"actor": Network("observation", gives=logits)}
    update = (
        forward("actor", "observation"),
        each(imitation_gradient),
        backward("actor"),
        step("actor"),
    )
    reports = {"loss": "loss", "entropy": "entropy"}

    def make_head(self) -> Head:
        """Return the head of one choice, sampled from the policy's probabilities."""
        return categorical(self.check_choices(), self.source.masked)
