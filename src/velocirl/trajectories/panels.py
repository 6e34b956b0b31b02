"""Plot contents of trajectories, independent of the backend: one panel per quantity, with its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from velocirl.trajectories.alarms import stretches
from velocirl.trajectories.trajectory import Array, Quantity, Trajectory, readable_time

MOST_LINES = 6  # of a panel: more are hard to distinguish


class Trace(NamedTuple):
    """Line over time, without non-finite values."""

    name: str
    time: Array
    values: Array


@dataclass(frozen=True)
class Panel:
    """One quantity: a line for each trajectory, limits, and the times beyond them."""

    kind: str  # signal, constraint, actuator or reward
    name: str
    unit: str
    time_unit: str
    lines: tuple[Trace, ...]
    limits: tuple[Trace, ...] = ()  # of the longest trajectory
    set_points: tuple[Trace, ...] = ()  # one for each line, or a single one if they are equal
    violated: tuple[tuple[float, float], ...] = ()  # begin and end, in any of the trajectories
    mark: float | None = None  # time of an event

    @property
    def title(self) -> str:
        """Name without underscores."""
        return self.name.replace("_", " ")

    @property
    def held(self) -> bool:
        """True if each value holds until the next one, as for an actuator."""
        return self.kind == "actuator"


def headline(trajectory: Trajectory) -> str:
    """Return a short title of a trajectory."""
    scenario = "" if trajectory.scenario is None else f", {trajectory.scenario}"
    return f"{trajectory.environment}{scenario}: {trajectory.policy}"


def by_episode(trajectory: Trajectory) -> dict[str, Trajectory]:
    """Return the first episodes of a trajectory, each by itself; the one with the highest cost is always included."""
    numbers = trajectory.episode[trajectory.first].tolist()
    shown = numbers[:MOST_LINES]
    if trajectory.cost is not None:
        costs = np.add.reduceat(np.asarray(trajectory.cost, np.float64), trajectory.first)
        if costs.max() > costs[:MOST_LINES].max():
            shown[-1] = numbers[int(costs.argmax())]
    return {f"episode {one + 1}": trajectory.one(one) for one in shown}


def panels_of(trajectories: Mapping[str, Trajectory]) -> list[Panel]:
    """Build the panels of single episodes by name: constraints without a signal come first, then signals."""
    trajectories = _in_readable_time(trajectories)
    first = next(iter(trajectories.values()))
    limits: dict[str | None, list[str]] = {}
    for name, one in first.constraints.items():
        limits.setdefault(one.signal, []).append(name)
    panels = [_panel("constraint", name, trajectories, [name]) for name in limits.get(None, ())]
    panels += [_panel("signal", name, trajectories, limits.get(name, ())) for name in first.signals]
    panels += [_panel("actuator", name, trajectories) for name in first.actuators]
    return [*panels, _panel("reward", "reward", trajectories)]


def _panel(kind: str, name: str, trajectories: Mapping[str, Trajectory], constraints: Sequence[str] = ()) -> Panel:
    first = next(iter(trajectories.values()))
    lines = [_finite(label, one.time, _quantity(one, kind, name).values) for label, one in trajectories.items()]
    longest = max(trajectories.values(), key=len)
    limits = [limit for one in constraints for limit in _limits(one, longest)]
    violated = [
        (float(one.time[begin - 1]), float(one.time[end - 1]))
        for one in trajectories.values()
        for constraint in constraints
        for begin, end in stretches(one.constraints[constraint].cost > 0)
    ]
    unit = _quantity(first, kind, name).unit
    targets = _set_points(name, trajectories, longest) if kind == "signal" else ()
    return Panel(kind, name, unit, first.time_unit, tuple(lines), tuple(limits), targets, tuple(_merged(violated)))


def _set_points(name: str, trajectories: Mapping[str, Trajectory], longest: Trajectory) -> tuple[Trace, ...]:
    """Return a signal's set point in each trajectory, or the longest one's if it is the same in all."""
    held = [(one.time, one.set_points[name].values) for one in trajectories.values() if name in one.set_points]
    if len({float(value) for _, values in held for value in np.unique(values)}) == 1:
        held = [(longest.time, longest.set_points[name].values)]
    return tuple(_finite(f"set point of {name}", time, values) for time, values in held)


def _in_readable_time(trajectories: Mapping[str, Trajectory]) -> dict[str, Trajectory]:
    """Convert times to seconds, minutes, hours or days, depending on the longest trajectory."""
    longest = max(float(one.time.max(initial=0.0)) for one in trajectories.values())
    unit, seconds = readable_time(longest, next(iter(trajectories.values())).time_unit)
    return {name: replace(one, time=one.time / seconds, time_unit=unit) for name, one in trajectories.items()}


def _quantity(trajectory: Trajectory, kind: str, name: str) -> Quantity:
    if kind == "constraint":
        return Quantity(trajectory.constraints[name].values, trajectory.constraints[name].unit)
    if kind == "reward":
        return Quantity(trajectory.reward[1:])
    if kind == "signal":
        return trajectory.signals[name]
    values, unit = trajectory.actuators[name]
    return Quantity(np.concatenate([values[1:2], values[1:]]), unit)  # the first action holds from the beginning


def _merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merge overlapping time spans."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _limits(name: str, trajectory: Trajectory) -> Iterator[Trace]:
    for end in ("low", "high"):
        values = getattr(trajectory.constraints[name], end)
        if np.isfinite(values).any():
            yield _finite(f"{end} limit of {name}", trajectory.time, values)


def _finite(name: str, time: Array, values: Array) -> Trace:
    values = np.asarray(values, np.float64)
    time = time[-len(values) :]  # a reward has no initial value
    kept = np.isfinite(values)
    return Trace(name, time[kept], values[kept])
