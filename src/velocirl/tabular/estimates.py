"""Estimates of tabular agents: table values and action probabilities of the exploration strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.tabular.acting import legal_actions
from velocirl.tabular.learner import TabularTask
from velocirl.tabular.tables.exploring import COLDEST
from velocirl.training.estimates import refuse_forbidden, values_at

Rows = NDArray[Any]


class TableEstimates:
    """Estimates by a table; `rate` is the exploration rate, `first` the first action of the space."""

    def __init__(
        self, task: TabularTask, way: str, rate: float, number: Callable[[Rows], NDArray[np.int64]], first: int
    ) -> None:
        self._task, self._way, self._rate, self._number, self._first = task, way, rate, number, first

    def values(self, seen: Rows, masks: Any, state: Any, episode_start: Any) -> Rows:  # noqa: ARG002 - as networks
        """Return the value of the best legal action."""
        return self.action_values(seen, masks, None).max(axis=1)

    def action_values(self, seen: Rows, masks: Any, actions: Rows | None) -> Rows:
        """Return the values used for acting, of all actions or of the given `actions`."""
        legal_actions(self._task, masks, len(seen))
        found = refuse_forbidden(self._means(self._number(seen)), masks)
        return found if actions is None else values_at(found, actions.reshape(-1).astype(np.int64) - self._first)

    def probabilities(self, seen: Rows, masks: Any, state: Any, episode_start: Any) -> list[Rows]:  # noqa: ARG002
        """Return the probability of each action; in a state that was never visited all are equal."""
        states, legal = self._number(seen), legal_actions(self._task, masks, len(seen))
        legal = legal | ~legal.any(axis=1, keepdims=True)
        even = _even(legal)
        values = np.where(legal, self._means(states).astype(np.float64), -np.inf)
        if self._way == "epsilon_greedy":
            found = (1.0 - self._rate) * _even(values == values.max(axis=1, keepdims=True)) + self._rate * even
        elif self._way == "softmax":
            weights = np.exp((values - values.max(axis=1, keepdims=True)) / max(self._rate, COLDEST))
            found = weights / weights.sum(axis=1, keepdims=True)
        else:
            scores = np.where(legal, self._scores(states, values), -np.inf)
            found = _even(scores == scores.max(axis=1, keepdims=True))
        visited = self._task.table.places(states) >= 0
        return [np.where(visited[:, None], found, even).astype(np.float32)]

    def _means(self, states: NDArray[np.int64]) -> Rows:
        return self._task.table.look_up(states).mean(axis=1)

    def _scores(self, states: NDArray[np.int64], values: Rows) -> Rows:
        """Return upper confidence bounds; an action that was never tried has the highest."""
        table = self._task.table
        tried = table.arrays.rows["visits"][np.maximum(table.places(states), 0)].view(np.uint32)
        tried = tried.astype(np.float64)
        total = np.maximum(tried.sum(axis=1, keepdims=True), 1.0)
        bonus = self._rate * np.sqrt(np.log(total) / np.maximum(tried, 1.0))
        return np.where(tried == 0, np.inf, values + bonus)


def _even(chosen: NDArray[np.bool_]) -> Rows:
    return chosen / chosen.sum(axis=1, keepdims=True)
