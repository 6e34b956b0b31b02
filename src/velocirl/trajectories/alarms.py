"""Alarm list of a plant: when constraints were violated, for how long and how badly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from velocirl.trajectories.trajectory import Array, Trajectory


class Alarm(NamedTuple):
    """One uninterrupted violation of a constraint."""

    episode: int
    time: float  # of the first timestep beyond the limit
    constraint: str
    value: float  # the farthest beyond the limit
    limit: float
    duration: float  # from the beginning of the step that led to the first such timestep to the last one
    unit: str
    critical: bool


def alarms_of(trajectory: Trajectory) -> list[Alarm]:
    """Return every violation, ordered by episode and time."""
    found = [alarm for episode in trajectory.each() for name in trajectory.constraints for alarm in _of(episode, name)]
    return sorted(found, key=lambda one: (one.episode, one.time))


def stretches(violated: Array) -> list[tuple[int, int]]:
    """Return the segments in which flags are set without a break: the first row, and the one after the last."""
    edges = np.flatnonzero(np.diff(np.asarray(violated, np.int8), prepend=0, append=0))
    return [(int(begin), int(end)) for begin, end in zip(edges[::2], edges[1::2], strict=True)]


def _of(episode: Trajectory, name: str) -> list[Alarm]:
    trace, time = episode.constraints[name], episode.time
    excursion, found = trace.excursion, []
    for begin, end in stretches(trace.cost > 0):
        worst = begin + int(np.argmax(excursion[begin:end]))
        below = trace.values[worst] < trace.low[worst]
        limit = trace.low[worst] if below or not np.isfinite(trace.high[worst]) else trace.high[worst]
        found.append(
            Alarm(
                episode=int(episode.episode[0]),
                time=float(time[begin]),
                constraint=name,
                value=float(trace.values[worst]),
                limit=float(limit),
                duration=float(time[end - 1] - time[begin - 1]),  # no step leads to a beginning, so it has no cost
                unit=trace.unit,
                critical=trace.critical,
            )
        )
    return found
