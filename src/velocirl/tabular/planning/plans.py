"""Result of a planner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from velocirl.monitor.markup import facts_table
from velocirl.monitor.words import plural
from velocirl.tabular.planning.backups import Backup
from velocirl.tabular.planning.endings import ending_actions
from velocirl.tabular.planning.horizons import undiscounted_horizon
from velocirl.tabular.planning.models import TabularModel


@dataclass(frozen=True, eq=False)
class Plan:
    """Optimal plan of a model.

    `error_bound` is guaranteed: no value is further from the optimum, rounding included. It is inf if gamma is 1, some
    policy could continue forever and steps may be free: then no bound can be derived.
    """

    values: NDArray[np.float64]  # (states,): the largest action value of each state
    action_values: NDArray[np.float64]  # (states, actions), -inf where an action is illegal
    policy: NDArray[np.intp]  # (states,): the best action; of equally good ones the first, or one that ends the episode
    iterations: int  # sweeps of value iteration, or policies evaluated by policy iteration
    error_bound: float

    def __repr__(self) -> str:
        size, values, iterations, error = self._facts().values()
        return f"<Plan: {size}, values {values}, {iterations} iterations, error {error}>"

    def _repr_html_(self) -> str:
        return facts_table("Plan", self._facts())

    def _facts(self) -> dict[str, str]:
        states, actions = self.action_values.shape
        return {
            "size": f"{plural(states, 'state')} x {plural(actions, 'action')}",
            "values": f"{self.values.min():.6g} to {self.values.max():.6g}",
            "iterations": f"{self.iterations:,}",
            "error": f"at most {self.error_bound:.2g}" if np.isfinite(self.error_bound) else "of no known bound",
        }


def made_plan(
    model: TabularModel,
    backup: Backup,
    values: NDArray[np.float64],
    policy: NDArray[np.intp] | None,
    iterations: int,
    patience: int,
) -> Plan:
    """Build the plan from one more sweep over the values, with its error bound."""
    action_values = np.ascontiguousarray(backup(values))
    best = action_values.max(axis=1)
    doubt = backup.doubt(float(np.abs(best - values).max()), best)
    horizon = backup.horizon if backup.contracts else undiscounted_horizon(model, best, doubt, patience)
    if policy is None:
        policy = _greedy(model, backup, action_values, best)
    return Plan(best, action_values, policy, iterations, doubt * horizon)


def _greedy(
    model: TabularModel, backup: Backup, action_values: NDArray[np.float64], best: NDArray[np.float64]
) -> NDArray[np.intp]:
    first = action_values.argmax(axis=1)
    if backup.contracts:
        return first
    # Staying for free looks as good as continuing, but a policy that stays never gets the state's value.
    as_good = action_values >= (best - 8.0 * backup.rounding(best))[:, None]
    ending = ending_actions(model, as_good)
    return np.where(ending >= 0, ending, first)
