"""How safe a policy was, in figures of one recorded trajectory and in estimates over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from velocirl.runs.curves.comparing import bootstrap, interquartile_mean
from velocirl.trajectories.trajectory import Array, Trajectory

RETURN, LENGTH, COST, STOPS = "return", "length", "cost", "emergency_stops"
RATE, TIME, EXCURSION = "violation_rate", "time_in_violation", "worst_excursion"
SCORE, GAP = "score", "gap"
MEANING = {
    RETURN: "mean return of an episode, penalties included",
    SCORE: "return on a scale on which random actions have 0 and the environment's controller has 100",
    COST: "steps of an episode that violate a constraint, summed over constraints",
    RATE: "share of episodes in which a constraint is violated",
    TIME: "time of an episode in which a constraint is violated",
    EXCURSION: "furthest beyond a limit that it ever was, in the unit of the constraint",
    STOPS: "share of episodes that end because a critical constraint is violated",
    GAP: "return less that of another policy from the same beginnings",
    LENGTH: "steps of an episode",
}


def figures_of(trajectory: Trajectory) -> dict[str, float]:
    """All figures of some episodes, as means over them; an excursion is the worst of them.

    Those of a single constraint have its name behind them: cost/level, violation_rate/level.
    """
    violated = np.zeros(len(trajectory), np.bool_) if trajectory.cost is None else trajectory.cost > 0
    total = 0.0 if trajectory.cost is None else float(trajectory.cost.sum()) / trajectory.episodes
    found = {RETURN: float(trajectory.returns.mean()), LENGTH: float(trajectory.lengths.mean()), COST: total}
    found |= {RATE: _rate(trajectory, violated), TIME: _time(trajectory, violated), STOPS: _stops(trajectory)}
    for name, trace in trajectory.constraints.items():
        beyond = trace.cost > 0
        found[f"{COST}/{name}"] = float(trace.cost.sum()) / trajectory.episodes
        found[f"{RATE}/{name}"] = _rate(trajectory, beyond)
        found[f"{TIME}/{name}"] = _time(trajectory, beyond)
        found[f"{EXCURSION}/{name}"] = float(trace.excursion[beyond].max(initial=0.0))
    return found


def _rate(trajectory: Trajectory, violated: Array) -> float:
    return float(np.maximum.reduceat(violated.astype(np.int8), trajectory.first).mean())


def _time(trajectory: Trajectory, violated: Array) -> float:
    """The time that the violating steps of an episode take."""
    taken = np.diff(trajectory.time, prepend=0.0)
    return float(taken[violated].sum()) / trajectory.episodes  # a beginning is no step, and never violates


def _stops(trajectory: Trajectory) -> float:
    critical = np.zeros(len(trajectory), np.bool_)
    for trace in trajectory.constraints.values():
        if trace.critical:
            critical |= trace.cost > 0
    return float((critical & trajectory.terminated).sum()) / trajectory.episodes


@dataclass(frozen=True)
class Estimate:
    """A figure over seeds: the interquartile mean and the ends of its 95% bootstrap interval; or the worst of all."""

    value: float
    low: float
    high: float
    values: tuple[float, ...]  # of each seed

    @property
    def certain(self) -> bool:
        """Whether there is no interval: one seed says nothing of others, and a worst is what it is."""
        return self.low == self.high


def estimate(values: Sequence[float]) -> Estimate:
    """The interquartile mean of seeds."""
    column = np.array(values, np.float64)[:, None]
    low, high = bootstrap(column)
    return Estimate(float(interquartile_mean(column)[0]), float(low[0]), float(high[0]), tuple(values))


def worst(values: Sequence[float]) -> Estimate:
    """The greatest of all seeds."""
    found = max(values)
    return Estimate(found, found, found, tuple(values))


def estimates(seeds: Sequence[dict[str, float]]) -> dict[str, Estimate]:
    """The figures of all seeds, put together."""
    return {
        name: (worst if name.startswith(EXCURSION) else estimate)([one[name] for one in seeds]) for name in seeds[0]
    }


def normalised(values: Sequence[float], random: float, controller: float) -> Estimate | None:
    """Returns on a scale from a random policy's to a controller's; None where the controller is no better."""
    if not controller > random:
        return None
    return estimate([100.0 * (value - random) / (controller - random) for value in values])
