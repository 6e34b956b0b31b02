"""Conservative Q-learning for a single choice (Kumar et al., 2020), on double Q-learning."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log

from velocirl.algorithms.online.dqn import action_columns, choose_by_network, loss_gradient, value_of
from velocirl.engine.records import int32
from velocirl.networks.declared import Network, TargetNetwork
from velocirl.networks.heads import Head, epsilon_greedy
from velocirl.program.stages import backward, each, every, follow, forward, step
from velocirl.training.offline import OfflineAgent, OfflineCriticConfig
from velocirl.training.settings.config import require


@dataclass(frozen=True)
class DiscreteCQLConfig(OfflineCriticConfig):
    """The settings of discrete CQL. The preset of an environment replaces these defaults."""

    conservatism: float = 1.0
    """Weight of the gap between the values of all actions and that of the data's."""
    dueling: bool = True
    """Dueling network: state value and advantages are separate outputs."""
    huber: float = 1.0
    """TD error above which the loss is linear; 0 is a squared error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.conservatism < inf, "conservatism", self.conservatism, "at least 0")
        require(0 <= self.huber < inf, "huber", self.huber, "at least 0")


def act(head, values, row, mask):
    """Choose the network's best action."""
    head.mode(values, mask, row.action)


def conservative_gradient(head, values, row, settings, gradient, metrics):
    """conservatism (log of the sum over actions of exp Q(s, .) - Q(s, a)), added to the gradient of the TD error.

    Columns are values, or advantages that differ from the values by a constant: the gap is the same.
    """
    action, highest, total = row.action[0], values[0], 0.0
    for k in range(head.outputs):
        highest = max(highest, values[k])
    for k in range(head.outputs):
        total += exp(values[k] - highest)
    for k in range(head.outputs):
        gradient[k] += settings.conservatism * exp(values[k] - highest) / total
    gradient[action] -= settings.conservatism
    metrics.gap += highest + log(total) - values[action]


class DiscreteCQL(OfflineAgent):
    """Conservative Q-learning for a choice of actions: double Q-learning where actions unseen count less.

    loss = huber(Q(s, a) - y) + conservatism (log of the sum over actions of exp Q(s, .) - Q(s, a)).
    `DiscreteCQL("CartPole-v1", data="cart.vds").learn(50_000)` makes so many updates.
    """

    name = "discrete-cql"
    Config = DiscreteCQLConfig
    networks = {
        "values": Network("observation", gives=action_columns),
        "target_values": TargetNetwork("values"),
    }

    class Scratch:
        """Fields of a transition in an update."""

        next_action: int32

    act, q_value = act, value_of
    update = (
        forward("target_values", "next_observation"),
        forward("values", "next_observation", name="next_values"),
        each(choose_by_network),
        forward("values", "observation"),
        each(loss_gradient),
        each(conservative_gradient),
        backward("values"),
        step("values"),
        every("target_every", follow("target_values", "values", "tau")),
    )
    reports = {"loss": "loss", "gap": "gap", "action_value": "action_value", "td_error": "td_error"}

    def make_head(self) -> Head:
        """Return the head of a greedy choice."""
        return epsilon_greedy(self.check_choices(), self.source.masked, 0.0)
