"""Implausible values: outside an instrument's or actuator's range, or at another interval than the plant's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from velocirl.buffers.data.columns import ACTIONS, OBSERVATIONS, stretches
from velocirl.buffers.data.dataset import Dataset
from velocirl.datasets.historian.units import conversion, unit_of, units_like
from velocirl.datasets.summary import channels
from velocirl.engine.environment import Environment
from velocirl.engine.operating import action_seconds

Array = NDArray[Any]
TOLERANCE = 1e-3  # fraction of a range: a controller's 100.02% is full scale
FITTING = 0.99  # fraction of values that must be within the range to propose another unit
LEAST_USED = 0.05  # fraction of the range that they must use: in ppm, any fraction would fit
MOST_UNITS = 3  # proposed at most
SAME_INTERVAL = 0.05  # allowed difference of the median interval, as a fraction of a time step
STEADY = 0.25  # allowed difference of single intervals, as a fraction of a time step


class Doubt(NamedTuple):
    """One reason to distrust a dataset."""

    words: str
    impossible: bool  # whether values are impossible; otherwise a warning


def outside(values: Array, low: float, high: float) -> NDArray[np.bool_]:
    """Return a mask of values outside a range by more than rounding; missing values count as inside."""
    margin = TOLERANCE * (high - low) if np.isfinite(high - low) else 0.0
    return (values < low - margin) | (values > high + margin)


def range_words(low: float, high: float, unit: str) -> str:
    """Format a range, such as "280 to 600 K"."""
    said = f" {unit}" if unit not in ("", "1") else ""
    if np.isfinite([low, high]).all():
        return f"{low:.6g} to {high:.6g}{said}"
    return f"{low:.6g}{said} or more" if np.isfinite(low) else f"{high:.6g}{said} or less"


def other_units(values: Array, unit: str, low: float, high: float) -> str:
    """Return a clause naming the units in which values would fit a range given in `unit`, or an empty text."""
    known, values = unit_of(unit), values[np.isfinite(values)]
    if known is None or not len(values):
        return ""
    fitting = []
    for other in units_like(unit):
        factor, offset = conversion(other, unit, "")
        converted = values * factor + offset
        used = converted.max() - low > LEAST_USED * (high - low) if np.isfinite(high - low) else True
        if unit_of(other) != known and used and outside(converted, low, high).mean() <= 1.0 - FITTING:
            fitting.append(other)
    return f"; in {' or '.join(fitting[:MOST_UNITS])} they would be within it" if fitting else ""


def interval_doubt(seconds: Array, time_step: float) -> str | None:
    """Describe how the interval of rows differs from a time step; None if they agree."""
    if not len(seconds):
        return None
    usual, mean = float(np.median(seconds)), float(seconds.mean())
    if min(abs(usual - time_step), abs(mean - time_step)) <= SAME_INTERVAL * time_step:  # mean: times may be rounded
        return None
    return f"rows are {usual:g} s apart"


def unsteady(seconds: Array, time_step: float) -> str | None:
    """Describe how many intervals differ from the usual one; None if none does."""
    odd = np.abs(seconds - time_step) > STEADY * time_step
    if not odd.any():
        return None
    ends = f"{seconds[odd].min():g} to {seconds[odd].max():g} s"
    return f"{int(odd.sum()):,} of {len(seconds):,} steps do not take {time_step:g} s but {ends}"


def doubts(dataset: Dataset, environment: Environment | None = None) -> list[Doubt]:
    """Return everything in a dataset that contradicts its environment, or its own ranges and units."""
    found = [*_outside_ranges(dataset, OBSERVATIONS, environment), *_outside_ranges(dataset, ACTIONS, environment)]
    info = dataset.info
    if environment is not None and info.time_step is not None:
        wanted = action_seconds(environment, info.params)
        if wanted is not None and (words := interval_doubt(np.array([info.time_step]), wanted)):
            found.append(Doubt(f"{words}, and {environment.id} takes an action every {wanted:g} s", True))
    if len(dataset) and not any(rows.any() for _, rows in stretches(dataset.rewards)):
        found.append(Doubt("every reward is 0: only imitation (bc) learns from it", False))
    if any((rows < 0).any() for _, rows in stretches(dataset.costs)):
        found.append(Doubt("costs are below 0", True))
    return found


def _outside_ranges(dataset: Dataset, kind: str, environment: Environment | None) -> Iterator[Doubt]:
    ranges = _ranges(dataset if environment is None else environment, kind)
    for number, (name, unit, column, place, limits) in enumerate(channels(dataset, kind)):
        low, high = ranges[number] if ranges is not None else limits or (-np.inf, np.inf)
        count, first, kept = 0, None, []
        for begin, rows in stretches(column):
            values = rows.reshape(len(rows), -1)[:, place].astype(np.float64)
            beyond = outside(values, low, high)
            if beyond.any():
                first = first or (begin + int(np.argmax(beyond)), float(values[np.argmax(beyond)]))
                kept.append(values)
            count += int(beyond.sum())
        if first is not None:
            said = f" {unit}" if unit not in ("", "1") else ""
            hint = other_units(np.concatenate(kept), unit, low, high) if count > len(column) / 2 else ""
            yield Doubt(
                f"{name} is {first[1]:.6g}{said} at row {first[0]} of {kind}, outside {range_words(low, high, unit)}"
                f" ({count:,} of {len(column):,} rows){hint}",
                True,
            )


def _ranges(of: Dataset | Environment, kind: str) -> list[tuple[float, float]] | None:
    """Return the ranges of a Box's numbers; None for other spaces."""
    if isinstance(of, Dataset):
        space: Any = of.info.observation_space if kind == OBSERVATIONS else of.info.action_space
    else:
        space = of.observation if kind == OBSERVATIONS else of.action
    if not isinstance(space, Box):
        return None
    return [(float(low), float(high)) for low, high in zip(space.low.ravel(), space.high.ravel(), strict=True)]
