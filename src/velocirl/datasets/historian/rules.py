"""Rules that split the rows of a table into episodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.datasets.historian.mapping import REFUSE, HistorianMapping

Array = NDArray[Any]
USUAL = 1.5  # a gap is longer than this multiple of the median interval, by default


class Rows(NamedTuple):
    """Rows in order of time, with the beginnings of episodes; numbers may be missing."""

    kept: Array  # row numbers in the table, without duplicates of a time
    times: Array  # seconds
    begins: Array  # whether a row begins an episode: after a gap, after an end, or with another label
    gap: float  # seconds that count as a gap
    duplicates: int  # rows dropped because another has the same time

    @property
    def intervals(self) -> Array:
        """Seconds between rows of the same episode."""
        return np.diff(self.times)[~self.begins[1:]]


class Cut(NamedTuple):
    """Episodes as ranges of rows, and counts of dropped rows."""

    rows: Array  # indices of the kept rows in `Rows`
    first: Array  # for each episode, the index of its first row in `rows`
    stop: Array  # for each episode, the index after its last row
    gap: float  # seconds that count as a gap
    duplicates: int  # rows dropped because another has the same time
    incomplete: int  # rows dropped because numbers are missing
    alone: int  # single rows dropped because no row follows in their episode


def ordered(
    times: Array, labels: Array | None, terminated: Array, mapping: HistorianMapping, source: str, shown: Array
) -> Rows:
    """Validate the times of rows and find where episodes begin: at gaps, label changes and ends.

    `times` are in seconds; `shown` are the table's own values, for messages.
    """
    if np.isnan(times).any():
        raise ValueError(f"{source}: row {int(np.argmax(np.isnan(times)))} has no time")
    changed = np.zeros(len(times), np.bool_) if labels is None else np.append(True, labels[1:] != labels[:-1])
    distance = np.diff(times)
    back = np.flatnonzero((distance < 0) & ~changed[1:])
    if len(back):
        row = int(back[0]) + 1
        raise ValueError(f"{source}: time goes back in row {row}, from {shown[row - 1]} to {shown[row]}: sort the rows")
    kept = _without_duplicates(times, changed, mapping, source, shown)
    kept_changed = np.diff(np.cumsum(changed)[kept], prepend=0) > 0  # also if the label changed in a dropped row
    distance = np.diff(times[kept])
    usual = distance[(distance > 0) & ~kept_changed[1:]]
    gap = mapping.gap or (USUAL * float(np.median(usual)) if len(usual) else np.inf)
    begins = np.append(True, (distance > gap) | terminated[kept][:-1].astype(np.bool_)) | kept_changed
    return Rows(kept, times[kept], begins, gap, len(times) - len(kept))


def cut(rows: Rows, missing: Array, mapping: HistorianMapping, source: str) -> Cut:
    """Split rows into episodes; rows with `missing` numbers are dropped, and a new episode begins after them."""
    whole = ~missing
    if not whole.any():
        raise ValueError(f"{source} has no row in which all numbers are there")
    broken = np.append(False, missing[:-1])
    number = np.cumsum(rows.begins | broken)[whole]  # episode number of each row
    first = np.flatnonzero(np.append(True, np.diff(number) > 0))
    stop = np.append(first[1:], len(number))
    if mapping.longest is not None:
        first, stop = _shortened(first, stop, int(mapping.longest))
    several = stop - first > 1
    if not several.any():
        raise ValueError(
            f"{source} has no episode of two rows or more: a gap of more than {rows.gap:g} s begins a new one"
        )
    kept, incomplete, alone = np.flatnonzero(whole), int(missing.sum()), int((~several).sum())
    return Cut(kept, first[several], stop[several], rows.gap, rows.duplicates, incomplete, alone)


def _without_duplicates(times: Array, changed: Array, mapping: HistorianMapping, source: str, shown: Array) -> Array:
    same = np.append(False, (np.diff(times) == 0) & ~changed[1:])
    if same.any() and mapping.duplicates == REFUSE:
        row = int(np.argmax(same))
        raise ValueError(
            f"{source}: rows {row - 1} and {row} have the same time, {shown[row]} ({int(same.sum())} such rows): say"
            " duplicates=first or last to keep one of them"
        )
    if mapping.duplicates == "last":
        return np.flatnonzero(~np.append(same[1:], False))
    return np.flatnonzero(~same)


def _shortened(first: Array, stop: Array, longest: int) -> tuple[Array, Array]:
    """Split episodes to at most `longest` steps; consecutive parts share a row, where the next part continues."""
    pairs = [
        (begin, min(begin + longest + 1, end))
        for start, end in zip(first, stop, strict=True)
        for begin in range(start, max(end - 1, start + 1), longest)
    ]
    return np.array([one for one, _ in pairs]), np.array([other for _, other in pairs])
