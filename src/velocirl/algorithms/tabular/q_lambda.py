"""Watkins's Q(lambda) (Watkins, 1989): what is learnt of a step is passed on to those that led to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from velocirl.algorithms.tabular.q_learning import best_ahead
from velocirl.tabular.agent import TabularAgent
from velocirl.tabular.config import TableConfig
from velocirl.tabular.memory import Memory
from velocirl.tabular.tables.rules import Rule, learn_single, single_value
from velocirl.tabular.traces import memory_of_traces
from velocirl.training.settings.config import require


@dataclass(frozen=True)
class QLambdaConfig(TableConfig):
    """The settings of Q(lambda): those of every tabular algorithm, and those of its traces."""

    trace_decay: float = 0.9
    """Lambda: how much of an error reaches the step before, besides gamma; 0 is Q-learning."""
    traces: Literal["replacing", "accumulating"] = "replacing"
    """Whether a pair that is met again counts once, or as often as it was met."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.trace_decay <= 1, "trace_decay", self.trace_decay, "from 0 to 1")


class QLambda(TabularAgent):
    """Q(s, a) += step * trace(s, a) * error, with error = r + gamma max Q(s', a') - Q(s, a) of the last step.

    The trace of a pair is (gamma lambda) ** age. An action that is not greedy cuts the traces, since what comes after
    it says nothing of the greedy policy that is learnt; so does the end of an episode. The settings are those of
    `QLambdaConfig`.
    """

    name: ClassVar[str] = "q-lambda"
    Config: ClassVar[type[Any]] = QLambdaConfig

    def make_rule(self) -> Rule:
        """Return the update rule: one table, with the best action's value as the next state's value."""
        return Rule(1, single_value, best_ahead, learn_single)

    def make_memory(self) -> Memory:
        """Return the eligibility traces."""
        config: Any = self.config
        return memory_of_traces(
            self.rule, config.gamma, config.trace_decay, accumulating=config.traces == "accumulating"
        )
