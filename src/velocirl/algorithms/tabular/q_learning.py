"""Q-learning (Watkins, 1989): learn the value of the best that can be done, whatever is done."""

from __future__ import annotations

from typing import Any, ClassVar

from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.config import TabularConfig
from velocirl.tabular.tables.rules import Rule, learn_single, single_value


class QLearning(TabularAgent):
    """Q(s, a) moves towards r + gamma max Q(s', a'). `QLearning("FrozenLake-v1").learn(1_000_000)`.

    The settings are those of `TabularConfig`.
    """

    name: ClassVar[str] = "q-learning"
    Config: ClassVar[type[Any]] = TabularConfig

    def make_rule(self) -> Rule:
        """Return the update rule: one table, with the best action's value as the next state's value."""
        return Rule(1, single_value, best_ahead, learn_single)


def best_ahead(rows, place, mask, action, best, rate, coin):  # noqa: ARG001 - as every rule
    """Return the highest value of the next state."""
    return best
