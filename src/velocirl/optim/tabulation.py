"""Schedules from functions of the remaining progress: sampled into points, so that no code is saved."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import isfinite
from typing import Any

from velocirl.optim.schedules import MOST_POINTS, Points

STRETCHES = 128  # segments of training, at first
TOLERANCE = 1e-5  # error between points, relative to the largest value
NARROWEST = 1e-9  # of training: width of a jump


def tabulated(function: Callable[[float], Any]) -> Points:
    """Sample a function of the remaining progress, which falls from 1 to 0 as in Stable-Baselines3.

    The points are so dense that the straight lines between them are within 1e-5 of the largest value.
    """
    seen: dict[float, float] = {}

    def at(progress: float) -> float:
        if progress not in seen:
            seen[progress] = _number(function(1.0 - progress), 1.0 - progress)
        return seen[progress]

    places = [k / STRETCHES for k in range(STRETCHES + 1)]
    allowed = TOLERANCE * max(abs(at(place)) for place in places)
    found = [0.0]
    for start, stop in pairwise(places):
        waiting = [(start, stop)]
        while waiting:
            low, high = waiting.pop()
            if _is_straight(at, low, high, allowed) or high - low < NARROWEST:
                found.append(high)
                continue
            if len(seen) > 8 * MOST_POINTS:
                raise ValueError("a function of the progress changes too often to be sampled: give points, or a name")
            middle = 0.5 * (low + high)
            waiting += [(middle, high), (low, middle)]
    return Points(tuple((place, at(place)) for place in _without_straight(found, at, allowed)))


def _number(value: Any, remaining: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not isfinite(number):
        raise ValueError(f"a function of the progress gives finite numbers, got {value!r} for {remaining!r}")
    return number


def _is_straight(at: Callable[[float], float], low: float, high: float, allowed: float) -> bool:
    """Return whether a straight line is near the function at the quarters of a segment."""
    first, last = at(low), at(high)
    return all(
        abs(first + share * (last - first) - at(low + share * (high - low))) <= allowed for share in (0.25, 0.5, 0.75)
    )


def _without_straight(places: list[float], at: Callable[[float], float], allowed: float) -> list[float]:
    """Return the positions without those on a straight line between the ones that are kept."""
    kept = [places[0]]
    first = 0
    while first < len(places) - 1:
        step, last = 1, first + 1
        while step:  # extend the line by steps that double and then halve
            reach = min(last + step, len(places) - 1)
            if reach > last and _on_line(places, first, reach, at, allowed):
                last, step = reach, 2 * step
            else:
                step //= 2
        kept.append(places[last])
        first = last
    return kept


def _on_line(places: list[float], first: int, last: int, at: Callable[[float], float], allowed: float) -> bool:
    low, high = places[first], places[last]
    slope = (at(high) - at(low)) / (high - low)
    return all(abs(at(low) + slope * (place - low) - at(place)) <= allowed for place in places[first + 1 : last])
