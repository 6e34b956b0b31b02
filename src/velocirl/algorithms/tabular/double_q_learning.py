"""Double Q-learning (van Hasselt, 2010): two estimates, so that none is judged by what it chose itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.config import TabularConfig
from velocirl.tabular.tables.exploring import LOWEST, legality
from velocirl.tabular.tables.rules import Rule, moved_by


class DoubleQLearning(TabularAgent):
    """A coin says which estimate learns: A(s, a) moves towards r + gamma B(s', argmax A(s', a')), or B likewise.

    The highest of uncertain values is too high on average, and Q-learning learns from it; an action that one estimate
    chose is valued without that bias by the other. Acting goes by the mean of both. With `n_step` above 1, the rewards
    in between are those of the actions that were taken, uncorrected. The settings are those of `TabularConfig`.
    """

    name: ClassVar[str] = "double-q-learning"
    Config: ClassVar[type[Any]] = TabularConfig

    def make_rule(self) -> Rule:
        """Return the update rule, with two sets of values in each row."""
        legal = legality(self.source.masked)
        return Rule(2, mean_value(self.actions), other_ahead(self.actions, legal), learn_one(self.actions))


def mean_value(actions: int) -> Callable[..., Any]:
    """Return `value(rows, place, action)`: the mean of both estimates."""

    def value(rows, place, action):
        values = rows[place].values
        return (values[action] + values[actions + action]) * 0.5

    return value


def other_ahead(actions: int, legal: Callable[..., Any]) -> Callable[..., Any]:
    """Return `follow(...)`: the other estimate's value of the action that the learning one finds best."""

    def follow(rows, place, mask, action, best, rate, coin):  # noqa: ARG001 - as every rule
        values = rows[place].values
        own, other = (actions, 0) if coin == 1 else (0, actions)
        chosen, highest = 0, values[own] if legal(mask, 0) else LOWEST
        for a in range(1, actions):
            better = legal(mask, a) and values[own + a] > highest
            highest = values[own + a] if better else highest
            chosen = a if better else chosen
        return values[other + chosen]

    return follow


def learn_one(actions: int) -> Callable[..., Any]:
    """Return `learn(...)`, which updates the estimate that the coin selects."""

    def learn(rows, place, action, target, step, coin):
        values = rows[place].values
        which = action + (actions if coin == 1 else 0)
        error = target - values[which]
        values[which] = moved_by(values[which], step * error)
        return error

    return learn
