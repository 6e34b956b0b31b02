"""Filling of missing numbers by holding or interpolation, over short gaps only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.datasets.historian.mapping import INTERPOLATE

Array = NDArray[Any]


def fill(numbers: Array, times: Array, begins: Array, how: str, max_gap: float) -> tuple[Array, int]:
    """Fill missing numbers (NaN) in rows (rows, columns); returns the numbers and the count filled.

    `how` is hold (the last known value) or interpolate (linear between the values before and after). A gap is filled
    completely if it lasts at most `max_gap` seconds, and otherwise not at all. Its length counts from the last known
    value to the next one or to the end of the episode. An episode begins at each row of `begins`; values are never
    filled across episodes.
    """
    filled, rows = numbers.copy(), np.arange(len(times))
    first = np.maximum.accumulate(np.where(begins, rows, 0))
    ends = np.append(begins[1:], True)
    last = np.minimum.accumulate(np.where(ends, rows, len(rows))[::-1])[::-1]
    for column in filled.T:
        known = ~np.isnan(column)
        before = np.maximum.accumulate(np.where(known, rows, -1))
        after = np.minimum.accumulate(np.where(known, rows, len(rows))[::-1])[::-1]
        found, closed = before >= first, after <= last
        lasts = times[np.where(closed, after, last)] - times[np.maximum(before, 0)]
        chosen = ~known & found & (lasts <= max_gap)
        if how == INTERPOLATE:
            chosen &= closed
            low, high = before[chosen], after[chosen]
            share = (times[chosen] - times[low]) / (times[high] - times[low])
            column[chosen] = column[low] + share * (column[high] - column[low])
        else:
            column[chosen] = column[before[chosen]]
    return filled, int(np.isnan(numbers).sum() - np.isnan(filled).sum())
