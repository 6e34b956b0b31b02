"""Behavioural cloning: do what the data did, by regression of its actions on its observations."""

from __future__ import annotations

from dataclasses import dataclass
from math import tanh

from velocirl.networks import squashed
from velocirl.networks.declared import Columns, Groups, Network
from velocirl.networks.heads import Head
from velocirl.program.stages import backward, each, forward, step
from velocirl.training.offline import OfflineAgent, OfflineConfig


@dataclass(frozen=True)
class BCConfig(OfflineConfig):
    """The settings of behavioural cloning. The preset of an environment replaces these defaults."""


def one_action(agent: BC) -> Groups:
    """Declare one output per number of an action; small initial weights center the first actions in their range."""
    return [[Columns(agent.head.outputs, gain=0.01)]]


def imitation_gradient(actor, row, gradient, metrics):
    """mean over the numbers of an action of (tanh(output) - a)^2"""
    size = len(row.action)
    for k in range(size):
        action = tanh(actor[k])
        error = action - row.action[k]
        gradient[k] = 2.0 / size * error * (1.0 - action * action)
        metrics.loss += error * error / size


class BC(OfflineAgent):
    """Behavioural cloning: act as the data did, one action for each state.

    loss = |tanh(output) - a|^2, the mean over the numbers of an action. `BC(data="reactor.vds").learn(50_000)` makes so
    many updates.
    """

    name = "bc"
    Config = BCConfig
    networks = {"actor": Network("observation", gives=one_action)}
    update = (
        forward("actor", "observation"),
        each(imitation_gradient),
        backward("actor"),
        step("actor"),
    )
    reports = {"loss": "loss"}

    def make_head(self) -> Head:
        """Return the head of a deterministic actor within the action bounds, without noise."""
        return squashed.squashed_value(self.check_numbers(), 0.0)
