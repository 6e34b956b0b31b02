"""Figures of rows as arrays: one for each name, and the time at which rows were written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from velocirl.runs.metrics import ELAPSED, Row


def names_of(rows: Sequence[Row]) -> list[str]:
    """The names of all figures, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def column(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """A figure of every row; NaN where there is none."""
    return np.array([np.nan if (found := row.get(name)) is None else found for row in rows], np.float64)


def clock(rows: Sequence[Row]) -> NDArray[np.float64]:
    """For how many seconds a run had been trained at each row; the clock of rows begins anew whenever it is resumed."""
    times = np.nan_to_num(column(rows, ELAPSED))
    steps = np.diff(times, prepend=0.0)
    return np.cumsum(np.where(steps < 0.0, times, steps))
