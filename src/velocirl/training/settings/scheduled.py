"""Scheduled settings, which change in training: their input, their storage in a configuration and their values.

A configuration stores the number and, separately, the schedule as text: loading it executes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from math import inf
from typing import Any

import numpy as np

from velocirl.engine.naming import nearest
from velocirl.optim.schedules import Points, Schedule, schedule_from
from velocirl.optim.tabulation import tabulated

# Settings whose schedules are settings themselves; other schedules are entries of `SCHEDULES`.
APART = {"learning_rate": "learning_rate_schedule", "exploration_rate": "exploration_schedule"}
SCHEDULES = "schedules"
STEADY = "constant"


@dataclasses.dataclass(frozen=True)
class Range:
    """Valid values of a setting during training, if they differ from its initial ones, and the meaning of 0."""

    least: float = -inf
    most: float = inf
    zero_is_off: bool = False  # whether 0 turns the feature off: a schedule may reach 0 only at its end
    is_built: bool = False  # whether agents are built with or without it: it stays 0, or above 0


@cache
def scheduled_of(kind: type[Any]) -> Mapping[str, Range]:
    """Return the settings of a configuration that may change in training.

    They are the settings in `scheduled` and, if the class has `fixed`, all other floats that `fixed` does not name.
    """
    declared: dict[str, Range] = {}
    fixed: frozenset[str] = frozenset()
    for base in reversed(kind.__mro__):
        declared |= vars(base).get("scheduled", {})
        fixed |= vars(base).get("fixed", frozenset())
    if not hasattr(kind, "fixed"):
        return declared
    floats = [one.name for one in dataclasses.fields(kind) if _is_float(one) and one.name not in fixed]
    return {name: declared.get(name, Range()) for name in floats}


def is_schedule(value: Any) -> bool:
    """Return whether a value given for a number is a schedule: a function, a text, or points."""
    rows = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return rows or isinstance(value, (str, Schedule)) or callable(value)


def schedules_of(config: Any) -> Mapping[str, str]:
    """Return the schedules of settings that have no schedule setting of their own, as texts by name."""
    return getattr(config, SCHEDULES, None) or {}


def schedule_of(config: Any, name: str) -> Schedule:
    """Return the schedule of a setting."""
    text = getattr(config, APART[name]) if name in APART else schedules_of(config).get(name, STEADY)
    return schedule_from(text)


def scheduled_value(config: Any, name: str, progress: float) -> float:
    """Return the value of a setting at a progress of training, by its schedule."""
    return schedule_of(config, name).value(getattr(config, name), progress)


def split_schedules(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which schedules given for numbers are split into numbers and texts."""
    plain = {field.name: field.default for field in dataclasses.fields(kind)}
    known = scheduled_of(kind)
    floats = {field.name for field in dataclasses.fields(kind) if _is_float(field, "str | float")}
    settings = dict(given)
    others = given.get(SCHEDULES)
    if isinstance(others, Mapping):
        settings[SCHEDULES] = {name: str(schedule_from(_of(name, value))) for name, value in others.items()}
    for name, value in given.items():
        default = plain.get(name)
        number = isinstance(default, (int, float)) and not isinstance(default, bool)
        if not (name in known or name in floats or number) or not is_schedule(value):
            continue
        if name not in known and isinstance(value, str) and not _is_readable(value):
            continue  # rejected later as not a number
        if name not in known:
            raise ValueError(f"{name}={value!r}: give a number; those that change in training are {', '.join(known)}")
        schedule = _of(name, value)
        if name in APART:
            if given.get(APART[name]) is not None:
                raise ValueError(f"{name} is given as a schedule: leave {APART[name]} out")
            settings[APART[name]] = str(schedule)
        else:
            if isinstance(others, Mapping) and name in others:
                raise ValueError(f"{name} is given as a schedule: leave it out of {SCHEDULES}")
            settings[SCHEDULES] = {**(settings.get(SCHEDULES) or {}), name: str(schedule)}
        if isinstance(schedule, Points):
            settings[name] = schedule.largest
        else:
            del settings[name]
    return settings


def check_schedules(config: Any) -> None:
    """Raise for unreadable schedules, and for points outside the range of their setting."""
    known = scheduled_of(type(config))
    for name in schedules_of(config):
        if name not in known:
            raise ValueError(f"{SCHEDULES}: {name!r} has no schedule{nearest(name, list(known))}")
        if name in APART:
            raise ValueError(f"{SCHEDULES}: the schedule of {name} is {APART[name]}: give that")
    for name, range_ in known.items():
        schedule = schedule_of(config, name)
        for place, value in schedule.points if isinstance(schedule, Points) else ():
            if not range_.least <= value <= range_.most:
                most = "" if range_.most == inf else f" and at most {range_.most:g}"
                raise ValueError(f"{name} must be at least {range_.least:g}{most}, got {value!r} at {place!r}")
        if range_.zero_is_off and getattr(config, name) != 0.0:
            zero = next((place for place in _corners(schedule) if place < 1 and schedule(place) == 0.0), None)
            if zero is not None:
                raise ValueError(f"{name}=0 turns it off, at {zero!r} of its schedule: go down to a small number")
        number = getattr(config, name)
        if name in schedules_of(config) and (number is not None or isinstance(schedule, Points)):
            for value in _extremes(schedule, number):  # raises as for plain numbers
                dataclasses.replace(config, **{name: value, SCHEDULES: None})


def without_replaced(kind: type[Any], settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without the schedules that changes replace.

    A schedule replaces the previous one. A number replaces a schedule that has values of its own; multipliers stay.
    """
    kept = dict(settings)
    for name in scheduled_of(kind):
        if name not in changes:
            continue
        own = APART.get(name)
        others = kept.get(SCHEDULES) or {}
        text = kept.get(own) if own else others.get(name)
        if text is None or (own in changes if own else SCHEDULES in changes):
            continue
        if not is_schedule(changes[name]) and not isinstance(schedule_from(text), Points):
            continue
        if own is None:
            kept[SCHEDULES] = {other: one for other, one in others.items() if other != name} or None
        elif is_schedule(changes[name]):
            del kept[own]
        else:
            kept[own] = STEADY
    return kept


def _of(name: str, value: Any) -> Schedule:
    """Return the schedule that was given for a setting."""
    try:
        if isinstance(value, (str, Schedule)):
            return schedule_from(value)
        return tabulated(value) if callable(value) else Points(_pairs(value))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _corners(schedule: Schedule) -> list[float]:
    """Return the first positions where a schedule may be 0: its points, or its start."""
    return [place for place, _ in schedule.points] if isinstance(schedule, Points) else [0.0]


def _extremes(schedule: Schedule, number: Any) -> set[float]:
    """Return the minimum and maximum of a setting before the end of training; for points, over all of them."""
    points = schedule.points if isinstance(schedule, Points) else None
    values = [value for _, value in points] if points else [schedule.value(number, k / 64) for k in range(64)]
    return {min(values), max(values)}


def _is_float(field: dataclasses.Field[Any], *others: str) -> bool:
    """Return whether a setting is a float, or a float that may be None."""
    return str(getattr(field.type, "__name__", field.type)) in ("float", "float | None", *others)


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
