"""SARSA (Rummery and Niranjan, 1994): learn the value of what is done, exploration included."""

from __future__ import annotations

from typing import Any, ClassVar

from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.config import TabularConfig
from velocirl.tabular.tables.rules import Rule, learn_single, single_value


class SARSA(TabularAgent):
    """Q(s, a) moves towards r + gamma Q(s', a'), a' being the action that is taken next.

    So an agent learns to stay clear of where exploring is dangerous. With `n_step` above 1, the rewards of so many
    steps are counted before Q(s', a'); as they are of the policy that is learnt, they need no correction. The settings
    are those of `TabularConfig`.
    """

    name: ClassVar[str] = "sarsa"
    Config: ClassVar[type[Any]] = TabularConfig

    def make_rule(self) -> Rule:
        """Return the update rule: one table, with the next action's value as the next state's value."""
        return Rule(1, single_value, taken_ahead, learn_single)


def taken_ahead(rows, place, mask, action, best, rate, coin):  # noqa: ARG001 - as every rule
    """Return the value of the action that is taken next."""
    return rows[place].values[action]
