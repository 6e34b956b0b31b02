"""Metrics of rows as arrays, one per name, and the training time of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from velocirl.runs.metrics import ELAPSED, Row


def names_of(rows: Sequence[Row]) -> list[str]:
    """Return the names of all metrics, in the order of their first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def column(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """Return a metric of every row, shape (rows,); NaN where it is missing."""
    return np.array([np.nan if (found := row.get(name)) is None else found for row in rows], np.float64)


def clock(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return the seconds of training at each row, shape (rows,); corrects for the clock restarting on resume."""
    times = np.nan_to_num(column(rows, ELAPSED))
    steps = np.diff(times, prepend=0.0)
    return np.cumsum(np.where(steps < 0.0, times, steps))
