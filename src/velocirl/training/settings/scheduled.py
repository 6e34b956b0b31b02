"""Settings that change in training: what a user gives for one, how a configuration keeps it, and its values.

A configuration keeps the number and, apart from it, the text of a schedule: nothing that is loaded executes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from velocirl.optim.schedules import Points, Schedule, schedule_from
from velocirl.optim.tabulation import tabulated

# Settings whose schedules are settings themselves.
APART = {"learning_rate": "learning_rate_schedule", "exploration_rate": "exploration_schedule"}
STEADY = "constant"


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that a setting may have in training."""

    least: float = 0.0
    most: float = inf


def is_schedule(value: Any) -> bool:
    """Whether a value given for a number is a schedule: a function, a text, or points."""
    rows = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return rows or isinstance(value, (str, Schedule)) or callable(value)


def schedule_of(config: Any, name: str) -> Schedule:
    """The schedule of a setting."""
    return schedule_from(getattr(config, APART[name]))


def scheduled_value(config: Any, name: str, progress: float) -> float:
    """The value of a setting at a progress of training, by its schedule."""
    return schedule_of(config, name).value(getattr(config, name), progress)


def split_schedules(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with numbers and the texts of schedules in the place of schedules that were given for numbers."""
    plain = {field.name: field.default for field in dataclasses.fields(kind)}
    known: Mapping[str, Range] = getattr(kind, "scheduled", {})
    settings = dict(given)
    for name, value in given.items():
        default = plain.get(name)
        number = isinstance(default, (int, float)) and not isinstance(default, bool)
        if not (name in known or number) or not is_schedule(value):
            continue
        if name not in known and isinstance(value, str) and not _is_readable(value):
            continue  # refused as no number
        if name not in known:
            raise ValueError(f"{name}={value!r}: give a number; those that change in training are {', '.join(known)}")
        if given.get(APART[name]) is not None:
            raise ValueError(f"{name} is given as a schedule: leave {APART[name]} out")
        schedule = _schedule_from(name, value)
        settings[APART[name]] = str(schedule)
        if isinstance(schedule, Points):
            settings[name] = schedule.largest
        else:
            del settings[name]
    return settings


def check_schedules(config: Any) -> None:
    """Refuse schedules that cannot be read, and points out of the range of their setting."""
    known: Mapping[str, Range] = config.scheduled
    for name, range_ in known.items():
        schedule = schedule_of(config, name)
        for place, value in schedule.points if isinstance(schedule, Points) else ():
            if not range_.least <= value <= range_.most:
                most = "" if range_.most == inf else f" and at most {range_.most:g}"
                raise ValueError(f"{name} must be at least {range_.least:g}{most}, got {value!r} at {place!r}")


def without_replaced(kind: type[Any], settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the schedules that changes replace.

    A schedule replaces the one before. So does a number where that one has values of its own; a multiplier stays.
    """
    kept = dict(settings)
    for name in getattr(kind, "scheduled", {}):
        if name not in changes or APART[name] not in kept or APART[name] in changes:
            continue
        if is_schedule(changes[name]):
            del kept[APART[name]]
        elif isinstance(schedule_from(kept[APART[name]]), Points):
            kept[APART[name]] = STEADY
    return kept


def _schedule_from(name: str, value: Any) -> Schedule:
    """The schedule that was given for a setting."""
    try:
        if isinstance(value, (str, Schedule)):
            return schedule_from(value)
        return tabulated(value) if callable(value) else Points(_pairs(value))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _is_readable(text: str) -> bool:
    try:
        schedule_from(text)
    except ValueError:
        return False
    return True


def _pairs(points: Any) -> tuple[tuple[float, float], ...]:
    try:
        return tuple((float(place), float(number)) for place, number in points)
    except (TypeError, ValueError):
        raise ValueError(f"write points as [(0.0, 3e-4), (1.0, 0.0)], got {points!r}") from None
