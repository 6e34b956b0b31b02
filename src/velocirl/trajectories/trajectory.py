"""Recorded trajectory: all quantities over time, with names and units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from velocirl.monitor.words import plural

SHOWN = 5  # maximum number of returns, signals and actuators in a display
Array = NDArray[Any]
SECONDS, STEPS = "s", "steps"  # units of time
LONGER = (("d", 86400.0, 3.0), ("h", 3600.0, 3.0), ("min", 60.0, 10.0))  # (unit, its seconds, used from this many)


def readable_time(longest: float, unit: str) -> tuple[str, float]:
    """Return a readable unit for a time of this length, and its size in the given unit."""
    if unit == SECONDS:
        for name, seconds, least in LONGER:
            if longest >= least * seconds:
                return name, seconds
    return unit, 1.0


class Quantity(NamedTuple):
    """One quantity over time."""

    values: Array  # (rows,)
    unit: str = ""


def _named(quantities: Mapping[str, Quantity]) -> str:
    """Return the names of the first quantities with their units."""
    words = [f"{name} [{one.unit}]" if one.unit else name for name, one in quantities.items()]
    return ", ".join(words[:SHOWN]) + (f" and {len(words) - SHOWN} more" if len(words) > SHOWN else "")


@dataclass(frozen=True)
class ConstraintTrace:
    """Constrained value over time, its limits, and its cost."""

    values: Array  # (rows,)
    low: Array  # (rows,) -inf without this limit
    high: Array  # (rows,)
    cost: Array  # (rows,) 1 if the step that led here violated it, else 0
    unit: str = ""
    critical: bool = False
    signal: str | None = None  # the signal that measures the same

    @property
    def excursion(self) -> Array:
        """Distance beyond the limits, in the constraint's unit: 0 within them, infinite for NaN."""
        beyond = np.maximum(np.maximum(self.low - self.values, self.values - self.high), 0.0)
        return np.where(np.isnan(self.values), np.inf, beyond)

    @property
    def distance(self) -> Array:
        """Distance from the nearer limit, in the constraint's unit: negative beyond it, -inf for NaN."""
        inside = np.minimum(self.values - self.low, self.high - self.values)
        return np.where(np.isnan(self.values), -np.inf, inside)

    def at(self, chosen: Array) -> ConstraintTrace:
        """Return the trace of some rows."""
        parts = {name: getattr(self, name)[chosen] for name in ("values", "low", "high", "cost")}
        return replace(self, **parts)


class Column(NamedTuple):
    """Column of a trajectory's table."""

    name: str
    unit: str
    values: Array

    @property
    def heading(self) -> str:
        """Name with its unit, if it has one."""
        return f"{self.name} [{self.unit}]" if self.unit not in ("", "1") else self.name


@dataclass(frozen=True, repr=False)
class Trajectory:
    """Episodes one after the other, a row for each timestep.

    An episode of n steps has n + 1 rows: its beginning, then the timestep after each step. A row holds the observation
    of that timestep, the action that led to it (NaN at the beginning), and that step's reward and cost.
    """

    environment: str
    time: Array  # (rows,) since the beginning of the episode
    episode: Array  # (rows,) the first is 0
    reward: Array  # (rows,)
    terminated: Array  # (rows,)
    truncated: Array  # (rows,)
    signals: Mapping[str, Quantity]
    actuators: Mapping[str, Quantity]
    constraints: Mapping[str, ConstraintTrace] = field(default_factory=dict)
    cost: Array | None = None  # (rows,) all costs of a step, if the environment reports any
    set_points: Mapping[str, Quantity] = field(default_factory=dict)  # by the names of their signals
    time_unit: str = STEPS
    scenario: str | None = None
    seed: int | None = None
    policy: str = ""

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        played = f"{self.policy or 'episodes'} in {self.environment}"
        operated = "" if self.scenario is None else f", {self.scenario}"
        lasted = plural(int(self.lengths.sum()) if self.episodes else 0, "step")
        if self.episodes and self.time_unit == SECONDS:
            last = np.append(self.first[1:], len(self)) - 1
            lasted += f" in {float(self.time[last].sum()):,.6g} s"
        earned = f", mean return {self.returns.mean():,.6g}" if self.episodes else ""
        kinds = {"signal": self.signals, "actuator": self.actuators, "constraint": self.constraints}
        held = ", ".join(plural(len(one), name) for name, one in kinds.items() if one)
        return f"Trajectory({played}{operated}: {plural(self.episodes, 'episode')}, {lasted}{earned}; {held})"

    def _repr_html_(self) -> str:
        from velocirl.monitor.markup import facts_table  # only needed where a notebook shows it

        return facts_table("Trajectory", self._facts())

    def _facts(self) -> dict[str, str]:
        """Summarize the contents in a few words each; omit what is missing."""
        returns = self.returns
        limits = [f"{name} violated in {plural(int(one.cost.sum()), 'step')}" for name, one in self.constraints.items()]
        facts = {
            "environment": self.environment,
            "policy": self.policy,
            "scenario": self.scenario or "",
            "seed": "" if self.seed is None else str(self.seed),
            "length": f"{plural(self.episodes, 'episode')}, {plural(int(self.lengths.sum()), 'step')}",
            "return": ", ".join(f"{one:,.6g}" for one in returns[:SHOWN]) + (", …" if len(returns) > SHOWN else ""),
            "signals": _named(self.signals),
            "actuators": _named(self.actuators),
            "constraints": ", ".join(limits),
        }
        return {name: fact for name, fact in facts.items() if fact}

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.first)

    @property
    def first(self) -> Array:
        """First row of each episode."""
        return np.flatnonzero(np.diff(self.episode, prepend=-1))

    @property
    def returns(self) -> NDArray[np.float64]:
        """Return of each episode."""
        return np.add.reduceat(np.asarray(self.reward, np.float64), self.first)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of steps of each episode."""
        return np.diff(np.append(self.first, len(self))) - 1

    def one(self, episode: int) -> Self:
        """Return one episode by itself; it keeps its number."""
        return self.at(self.episode == episode)

    def each(self) -> Iterator[Self]:
        """Iterate over the episodes."""
        return map(self.one, self.episode[self.first].tolist())

    def at(self, chosen: Array) -> Self:
        """Return some of the rows."""
        rows = ("time", "episode", "reward", "terminated", "truncated")
        return replace(
            self,
            **{name: getattr(self, name)[chosen] for name in rows},
            signals={name: Quantity(one.values[chosen], one.unit) for name, one in self.signals.items()},
            actuators={name: Quantity(one.values[chosen], one.unit) for name, one in self.actuators.items()},
            constraints={name: one.at(chosen) for name, one in self.constraints.items()},
            set_points={name: Quantity(one.values[chosen], one.unit) for name, one in self.set_points.items()},
            cost=None if self.cost is None else self.cost[chosen],
        )

    def columns(self) -> list[Column]:
        """Return all quantities as one table; the kind precedes a quantity's name, as in signal/pressure."""
        found = [Column("episode", "", self.episode), Column("time", self.time_unit, self.time)]
        found += [Column(f"signal/{name}", one.unit, one.values) for name, one in self.signals.items()]
        found += [Column(f"actuator/{name}", one.unit, one.values) for name, one in self.actuators.items()]
        found.append(Column("reward", "", self.reward))
        for name, one in self.constraints.items():
            found += [
                Column(f"constraint/{name}", one.unit, one.values),
                Column(f"low/{name}", one.unit, one.low),
                Column(f"high/{name}", one.unit, one.high),
                Column(f"cost/{name}", "", one.cost),
            ]
        if self.cost is not None:
            found.append(Column("cost", "", self.cost))
        return [*found, Column("terminated", "", self.terminated), Column("truncated", "", self.truncated)]

    def save(self, path: str | Path) -> Path:
        """Write a file by its ending: .csv, .npz (for numpy.load), .png (a plot) or .html (a page)."""
        from velocirl.trajectories.saving import save_trajectory  # plotting modules are imported on first use

        return save_trajectory(self, path)
