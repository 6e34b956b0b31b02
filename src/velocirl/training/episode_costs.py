"""Costs of whole episodes, from the infos of a vector environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.vector.given_vector import as_array
from velocirl.vector.native import FleetVectorEnv

Array = NDArray[Any]
COST = "cost"  # key of a step's cost in infos


@dataclass(frozen=True)
class EpisodeCosts:
    """Costs of episodes: in total, by constraint, and whether a critical constraint ended the episode.

    The latter two are known for compiled environments only: other infos contain a total and no reason.
    """

    cost: NDArray[np.float64]  # (episodes,)
    by_constraint: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # (episodes,) each
    stopped: NDArray[np.bool_] | None = None  # (episodes,)

    def named(self) -> dict[str, NDArray[np.float64]]:
        """Return the costs by the names under which training reports them: cost, cost/level."""
        return {COST: self.cost, **{f"{COST}/{name}": of for name, of in self.by_constraint.items()}}

    @property
    def violated(self) -> NDArray[np.bool_]:
        """Mask (episodes,) of episodes with any cost."""
        return self.cost > 0.0


class CostMeter:
    """Accumulator of costs per environment until the episode ends."""

    def __init__(self, envs: VectorEnv) -> None:
        fleet = envs.unwrapped
        native = fleet.environment if isinstance(fleet, FleetVectorEnv) else None
        self._constraints = () if native is None else native.constraints
        self._total = np.zeros((envs.num_envs, 1 + len(self._constraints)))
        self._critical = np.array([one.critical for one in self._constraints], np.bool_)
        self._told = bool(self._constraints)
        self._rows: dict[int, tuple[Array, bool]] = {}  # by episode number

    def add(self, infos: dict[str, Any], ended: Array, counted: Array) -> None:
        """Add a step's costs, for environments where the step counts."""
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
        """Record the episodes that end with this step, by episode number."""
        for copy, number in zip(copies, numbers.tolist(), strict=True):
            self._rows[number] = self._total[copy].copy(), bool(terminated[copy] and self._stopping[copy])

    def clear(self, copies: Array) -> None:
        """Reset the totals of environments that start new episodes."""
        self._total[copies] = 0.0

    def found(self) -> EpisodeCosts | None:
        """Return the costs of ended episodes, ordered by episode number; None if no costs were reported."""
        if not self._told:
            return None
        rows = [self._rows[number] for number in sorted(self._rows)]
        table = np.array([row for row, _ in rows]).reshape(len(rows), -1)
        by_constraint = {one.name: table[:, 1 + place] for place, one in enumerate(self._constraints)}
        stopped = np.array([stop for _, stop in rows], np.bool_) if self._constraints else None
        return EpisodeCosts(table[:, 0], by_constraint, stopped)


def told_cost(infos: dict[str, Any], ended: Array) -> Array:
    """Return each environment's step cost from the infos of a Gymnasium environment; NaN where there is none.

    A cost of NaN becomes infinite, so that it is never treated as missing.
    """
    cost = np.full(len(ended), np.nan, np.float32)
    if COST in infos:
        told = np.asarray(infos.get(f"_{COST}", np.ones(len(ended), np.bool_)))
        cost[told] = _or_infinite(infos[COST])[told]
    final = infos.get("final_info")
    if isinstance(final, dict) and COST in final:  # after an episode's end, infos belong to the next episode
        cost[ended] = _or_infinite(final[COST])[ended]
    return cost


def _or_infinite(told: Any) -> Array:
    cost = as_array(told).astype(np.float32)
    return np.where(np.isnan(cost), np.float32(np.inf), cost)
