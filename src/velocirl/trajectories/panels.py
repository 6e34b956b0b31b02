"""What is drawn of trajectories, whatever it is drawn with: one panel for each quantity, with its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from velocirl.trajectories.alarms import stretches
from velocirl.trajectories.trajectory import Array, Quantity, Trajectory, readable_time

MOST_LINES = 6  # of a panel: more cannot be told apart


class Trace(NamedTuple):
    """A line over time, without what is not a number."""

    name: str
    time: Array
    values: Array


@dataclass(frozen=True)
class Panel:
    """One quantity: a line for each trajectory, limits, and when it was beyond them."""

    kind: str  # signal, constraint, actuator or reward
    name: str
    unit: str
    time_unit: str
    lines: tuple[Trace, ...]
    limits: tuple[Trace, ...] = ()  # those of the longest trajectory
    set_points: tuple[Trace, ...] = ()  # one for each line, or a single one where they are the same
    violated: tuple[tuple[float, float], ...] = ()  # from when to when, in any of them
    mark: float | None = None  # a time at which something was done

    @property
    def title(self) -> str:
        """The name, for people."""
        return self.name.replace("_", " ")

    @property
    def held(self) -> bool:
        """Whether values stand still until the next one, as an action does, rather than changing in between."""
        return self.kind == "actuator"


def headline(trajectory: Trajectory) -> str:
    """What a trajectory is of, in few words."""
    scenario = "" if trajectory.scenario is None else f", {trajectory.scenario}"
    return f"{trajectory.environment}{scenario}: {trajectory.policy}"


def by_episode(trajectory: Trajectory) -> dict[str, Trajectory]:
    """Return the first episodes of a trajectory, each by itself; the one that cost most is always among them."""
    numbers = trajectory.episode[trajectory.first].tolist()
    shown = numbers[:MOST_LINES]
    if trajectory.cost is not None:
        costs = np.add.reduceat(np.asarray(trajectory.cost, np.float64), trajectory.first)
        if costs.max() > costs[:MOST_LINES].max():
            shown[-1] = numbers[int(costs.argmax())]
    return {f"episode {one + 1}": trajectory.one(one) for one in shown}


def panels_of(trajectories: Mapping[str, Trajectory]) -> list[Panel]:
    """Panels of single episodes, by the name of each: constraints that no signal measures come first, then signals."""
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
    """Return the set point of a signal in each trajectory, or that of the longest one where it is the same in all."""
    held = [(one.time, one.set_points[name].values) for one in trajectories.values() if name in one.set_points]
    if len({float(value) for _, values in held for value in np.unique(values)}) == 1:
        held = [(longest.time, longest.set_points[name].values)]
    return tuple(_finite(f"set point of {name}", time, values) for time, values in held)


def _in_readable_time(trajectories: Mapping[str, Trajectory]) -> dict[str, Trajectory]:
    """Return trajectories whose time is in seconds, minutes, hours or days, as the longest of them asks for."""
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
    """The same time without a part of it twice."""
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
    time = time[-len(values) :]  # a reward has no beginning
    kept = np.isfinite(values)
    return Trace(name, time[kept], values[kept])
