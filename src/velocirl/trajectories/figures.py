"""Safety metrics of each episode, and estimates from all episodes of all seeds.

Returns and scores are interquartile means over seeds. Safety metrics are never trimmed: rates are counts over all
episodes, costs and times are means over all episodes, and an excursion is the worst of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from velocirl.runs.curves.comparing import bootstrap, interquartile_mean
from velocirl.runs.intervals import exact_share, mean_cost
from velocirl.runs.seeds import mean_and_reach
from velocirl.trajectories.control import CLOSEST, IAE, OVERSHOOT, SETTLING, TRAVEL, control_figures
from velocirl.trajectories.trajectory import Array, Trajectory

RETURN, LENGTH, COST, STOPS = "return", "length", "cost", "emergency_stops"
RATE, TIME, EXCURSION = "violation_rate", "time_in_violation", "worst_excursion"
SCORE, GAP = "score", "gap"
MEANING = {
    RETURN: "mean return of an episode, penalties included",
    SCORE: "return on a scale on which random actions have 0 and the environment's controller has 100",
    COST: "steps of an episode that violate a constraint, summed over constraints",
    RATE: "episodes in which a constraint is violated",
    TIME: "time of an episode in which a constraint is violated",
    EXCURSION: "furthest beyond a limit that it ever was, in the unit of the constraint",
    STOPS: "episodes that end because a critical constraint is violated",
    GAP: "return less that of another policy from the same beginnings",
    LENGTH: "steps of an episode",
}
BOOTSTRAP = "bootstrap of the interquartile mean over seeds"
EXACT = "exact binomial (Clopper-Pearson)"
PRODUCT = "exact binomial share of the episodes with any, times Student's t over these"
STUDENT = "Student's t over episodes"
Figures = dict[str, NDArray[np.float64]]  # by name, a number for each episode


def figures_of(trajectory: Trajectory) -> Figures:
    """Return all metrics of each episode; rates are 0 or 1, and an excursion is the worst of the episode.

    Metrics of a single constraint end with its name: cost/level, violation_rate/level. If the environment names no
    constraints, there are no emergency stops: the cause of an episode's end is unknown.
    """
    cost = np.zeros(len(trajectory)) if trajectory.cost is None else trajectory.cost
    found = {RETURN: trajectory.returns, LENGTH: trajectory.lengths.astype(np.float64)}
    found |= _costs(trajectory, cost, "")
    if trajectory.constraints:
        found[STOPS] = stopped(trajectory).astype(np.float64)
    for name, trace in trajectory.constraints.items():
        found |= _costs(trajectory, trace.cost, f"/{name}")
        beyond = np.where(trace.cost > 0, trace.excursion, 0.0)
        found[f"{EXCURSION}/{name}"] = np.maximum.reduceat(beyond.astype(np.float64), trajectory.first)
    return found | control_figures(trajectory)


def stopped(trajectory: Trajectory) -> NDArray[np.bool_]:
    """Return which episodes ended because a critical constraint was violated."""
    critical = np.zeros(len(trajectory), np.bool_)
    for trace in trajectory.constraints.values():
        if trace.critical:
            critical |= trace.cost > 0
    return np.logical_or.reduceat(critical & trajectory.terminated, trajectory.first)


def _costs(trajectory: Trajectory, cost: Array, of: str) -> Figures:
    """Return cost, violation and time in violation of each episode, by the cost of each step."""
    first, cost = trajectory.first, np.asarray(cost, np.float64)
    violated = ~(cost <= 0)  # NaN counts as a violation
    taken = np.diff(trajectory.time, prepend=0.0)  # the beginning is no step, and never violates
    return {
        f"{COST}{of}": np.add.reduceat(cost, first),
        f"{RATE}{of}": np.logical_or.reduceat(violated, first).astype(np.float64),
        f"{TIME}{of}": np.add.reduceat(np.where(violated, taken, 0.0), first),
    }


@dataclass(frozen=True)
class Estimate:
    """Metric of all episodes: its value and the ends of its 95% interval, by the method that `interval` names.

    `count` is the number of `episodes` with a violation, a stop or a cost. An infinite `high` means no upper end: too
    few episodes had a cost. `interval` is empty if there is none: for a worst of all, and for the mean of one seed.
    """

    value: float
    low: float
    high: float
    values: tuple[float, ...]  # value of each seed
    interval: str = ""
    count: int | None = None
    episodes: int | None = None
    most: float | None = None  # highest value of an episode

    @property
    def certain(self) -> bool:
        """True if there is no interval: for one seed, and for a worst value."""
        return self.low == self.high


def estimate(values: Sequence[float]) -> Estimate:
    """Return the interquartile mean over seeds."""
    column = np.array(values, np.float64)[:, None]
    low, high = bootstrap(column)
    return Estimate(float(interquartile_mean(column)[0]), float(low[0]), float(high[0]), tuple(values), BOOTSTRAP)


def worst(values: Sequence[float]) -> Estimate:
    """Return the maximum over all seeds."""
    found = max(values)
    return Estimate(found, found, found, tuple(values))


def nearest(values: Sequence[float]) -> Estimate:
    """Return the minimum over all seeds."""
    found = min(values)
    return Estimate(found, found, found, tuple(values))


def median(seeds: Sequence[NDArray[np.float64]]) -> Estimate:
    """Return the median over all episodes of all seeds, infinite if half of them never settle."""
    together = np.sort(np.concatenate(seeds))
    found = float(together[len(together) // 2])
    reached = int(np.isfinite(together).sum())
    values = tuple(float(np.sort(one)[len(one) // 2]) for one in seeds)
    return Estimate(found, found, found, values, count=reached, episodes=len(together))


def share(seeds: Sequence[NDArray[np.float64]]) -> Estimate:
    """Return the fraction of episodes with an event, given 0 or 1 for each episode of each seed."""
    together = np.concatenate(seeds)
    count, episodes = int(np.count_nonzero(together)), len(together)
    low, high = exact_share(count, episodes)
    return Estimate(count / episodes, low, high, _means(seeds), EXACT, count, episodes)


def spent(seeds: Sequence[NDArray[np.float64]]) -> Estimate:
    """Return the mean cost or time over all episodes of all seeds, and the maximum of an episode."""
    together = np.concatenate(seeds)
    together = np.where(np.isnan(together), math.inf, together)
    value, low, high = mean_cost(together)
    count, most = int(np.count_nonzero(together)), float(together.max())
    return Estimate(value, low, high, _means(seeds), PRODUCT, count, len(together), most)


def mean(seeds: Sequence[NDArray[np.float64]]) -> Estimate:
    """Return the mean over all episodes of all seeds."""
    together = np.concatenate(seeds)
    value, reach = (float(one[0]) for one in mean_and_reach(together[:, None]))
    return Estimate(value, value - reach, value + reach, _means(seeds), STUDENT, episodes=len(together))


def _means(seeds: Sequence[NDArray[np.float64]]) -> tuple[float, ...]:
    return tuple(float(one.mean()) for one in seeds)


def estimates(seeds: Sequence[Figures]) -> dict[str, Estimate]:
    """Return the estimates of all metrics over all episodes of all seeds."""
    return {name: _together(name.partition("/")[0], [one[name] for one in seeds]) for name in seeds[0]}


def _together(kind: str, seeds: Sequence[NDArray[np.float64]]) -> Estimate:
    if kind in (RATE, STOPS):
        return share(seeds)
    if kind in (COST, TIME):
        return spent(seeds)
    if kind == EXCURSION:
        return worst([float(one.max()) for one in seeds])
    if kind == CLOSEST:
        return nearest([float(one.min()) for one in seeds])
    if kind == SETTLING:
        return median(seeds)
    return mean(seeds) if kind in (LENGTH, IAE, OVERSHOOT, TRAVEL) else estimate(_means(seeds))


def normalised(values: Sequence[float], random: float, controller: float) -> Estimate | None:
    """Normalize returns: 0 for a random policy, 100 for the controller; None if the controller is no better."""
    if not controller > random:
        return None
    return estimate([100.0 * (value - random) / (controller - random) for value in values])
