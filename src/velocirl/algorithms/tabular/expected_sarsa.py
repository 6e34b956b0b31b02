"""Expected SARSA (van Seijen et al., 2009): learn the value of what is done, without the luck of the next draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.config import TabularConfig
from velocirl.tabular.tables.exploring import exploring
from velocirl.tabular.tables.rules import Rule, learn_single, single_value


class ExpectedSARSA(TabularAgent):
    """Q(s, a) moves towards r + gamma sum over a' of p(a' | s') Q(s', a'), p being how actions are chosen.

    As SARSA, but the mean over what might be taken next stands in for what is taken, which varies less. With `n_step`
    above 1, only the state at which the table's own estimate follows has the mean. The settings are those of
    `TabularConfig`.
    """

    name: ClassVar[str] = "expected-sarsa"
    Config: ClassVar[type[Any]] = TabularConfig

    def make_rule(self) -> Rule:
        """Return the update rule: one table, with the expected value under exploration as the next state's value."""
        way = exploring(self.config.exploration, self.actions, self.source.masked, single_value)
        return Rule(1, single_value, mean_ahead(way.expected), learn_single)


def mean_ahead(expected: Callable[..., Any]) -> Callable[..., Any]:
    """Return `follow(...)`: the mean value of the next action."""

    def follow(rows, place, mask, action, best, rate, coin):  # noqa: ARG001 - as every rule
        return expected(rows, place, mask, rate)

    return follow
