"""Costs of whole episodes, as infos of a vector environment tell them step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.vector.given_vector import as_array
from velocirl.vector.native import FleetVectorEnv

Array = NDArray[Any]
COST = "cost"  # the key under which infos tell what a step cost


@dataclass(frozen=True)
class EpisodeCosts:
    """Costs of episodes: their sum, by constraint, and which a critical constraint ended.

    The latter two are known of compiled environments only: infos of others tell a sum and no reason.
    """

    cost: NDArray[np.float64]  # (episodes,)
    by_constraint: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # (episodes,) each
    stopped: NDArray[np.bool_] | None = None  # (episodes,)

    def named(self) -> dict[str, NDArray[np.float64]]:
        """Return the costs by the names under which training reports them: cost, cost/level."""
        return {COST: self.cost, **{f"{COST}/{name}": of for name, of in self.by_constraint.items()}}

    @property
    def violated(self) -> NDArray[np.bool_]:
        """Episodes that cost anything."""
        return self.cost > 0.0


class CostMeter:
    """Adds up the costs of copies until their episodes end."""

    def __init__(self, envs: VectorEnv) -> None:
        fleet = envs.unwrapped
        native = fleet.environment if isinstance(fleet, FleetVectorEnv) else None
        self._constraints = () if native is None else native.constraints
        self._total = np.zeros((envs.num_envs, 1 + len(self._constraints)))
        self._critical = np.array([one.critical for one in self._constraints], np.bool_)
        self._told = bool(self._constraints)
        self._rows: dict[int, tuple[Array, bool]] = {}  # by the numbers of episodes

    def add(self, infos: dict[str, Any], ended: Array, counted: Array) -> None:
        """Add what a step cost, of the copies in which it counted as one."""
        if self._constraints:
            cost, costs = np.array(infos[COST], np.float64), np.array(infos["costs"], np.float64)
        else:
            cost, costs = told_cost(infos, ended).astype(np.float64), np.zeros((len(ended), 0))
            self._told = self._told or not np.isnan(cost).all()
            cost = np.where(np.isnan(cost), 0.0, cost)
        step = np.column_stack([cost, costs]) * counted[:, None]
        self._total += step
        self._stopping = (step[:, 1:] > 0) @ self._critical if self._constraints else np.zeros(len(ended), np.bool_)

    def end(self, copies: Array, terminated: Array, numbers: Array) -> None:
        """Note the episodes that end with this step, by their numbers."""
        for copy, number in zip(copies, numbers.tolist(), strict=True):
            self._rows[number] = self._total[copy].copy(), bool(terminated[copy] and self._stopping[copy])

    def clear(self, copies: Array) -> None:
        """Begin new episodes."""
        self._total[copies] = 0.0

    def found(self) -> EpisodeCosts | None:
        """Return the costs of the episodes that ended, in the order of their numbers; None where nobody told any."""
        if not self._told:
            return None
        rows = [self._rows[number] for number in sorted(self._rows)]
        table = np.array([row for row, _ in rows]).reshape(len(rows), -1)
        by_constraint = {one.name: table[:, 1 + place] for place, one in enumerate(self._constraints)}
        stopped = np.array([stop for _, stop in rows], np.bool_) if self._constraints else None
        return EpisodeCosts(table[:, 0], by_constraint, stopped)


def told_cost(infos: dict[str, Any], ended: Array) -> Array:
    """Return the cost of each copy's step, as infos of a Gymnasium environment tell it; NaN where they do not.

    A cost that is told and not a number is infinite, so that it is never taken for none.
    """
    cost = np.full(len(ended), np.nan, np.float32)
    if COST in infos:
        told = np.asarray(infos.get(f"_{COST}", np.ones(len(ended), np.bool_)))
        cost[told] = _or_infinite(infos[COST])[told]
    final = infos.get("final_info")
    if isinstance(final, dict) and COST in final:  # where an episode has ended, infos are those of the next
        cost[ended] = _or_infinite(final[COST])[ended]
    return cost


def _or_infinite(told: Any) -> Array:
    cost = as_array(told).astype(np.float32)
    return np.where(np.isnan(cost), np.float32(np.inf), cost)
