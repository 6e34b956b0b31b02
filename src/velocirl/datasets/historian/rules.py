"""Where episodes begin in rows of a table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.datasets.historian.mapping import REFUSE, HistorianMapping

Array = NDArray[Any]
USUAL = 1.5  # times the usual distance of rows is a gap, where nobody says


class Cut(NamedTuple):
    """Episodes as ranges of rows, and what was left out."""

    rows: Array  # those that are kept, in their order
    first: Array  # for each episode, the place of its first row among them
    stop: Array  # and that after its last
    gap: float  # seconds that were taken for a gap
    duplicates: int  # rows that were left out, as another has the same time
    incomplete: int  # rows that were left out, as numbers are missing
    alone: int  # rows that are no episode, as none follows


def cut(
    times: Array,
    missing: Array,
    labels: Array | None,
    terminated: Array,
    mapping: HistorianMapping,
    source: str,
    shown: Array,
) -> Cut:
    """Cut rows into episodes: at gaps, where a label changes, after an end, where numbers are missing.

    `times` are in seconds, `shown` as they stand in the table, for messages.
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
    duplicates = len(times) - len(kept)
    whole = ~missing[kept]
    incomplete = int((~whole).sum())
    broken = np.append(False, ~whole[:-1])[whole]  # what follows a row that is left out begins anew
    kept_changed = (np.diff(np.cumsum(changed)[kept], prepend=0) > 0)[whole]  # in a row that is left out, too
    kept = kept[whole]
    if not len(kept):
        raise ValueError(f"{source} has no row in which all numbers are there")
    distance = np.diff(times[kept])
    usual = distance[(distance > 0) & ~kept_changed[1:]]
    gap = mapping.gap or (USUAL * float(np.median(usual)) if len(usual) else np.inf)
    begins = np.append(True, (distance > gap) | terminated[kept][:-1].astype(np.bool_)) | broken | kept_changed
    first = np.flatnonzero(begins)
    stop = np.append(first[1:], len(kept))
    if mapping.longest is not None:
        first, stop = _shortened(first, stop, int(mapping.longest))
    several = stop - first > 1
    if not several.any():
        raise ValueError(f"{source} has no episode of two rows or more: a gap of more than {gap:g} s begins a new one")
    return Cut(kept, first[several], stop[several], gap, duplicates, incomplete, int((~several).sum()))


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
    """Episodes of at most so many steps; one that is cut off shares a row with the next, which goes on from there."""
    pairs = [
        (begin, min(begin + longest + 1, end))
        for start, end in zip(first, stop, strict=True)
        for begin in range(start, max(end - 1, start + 1), longest)
    ]
    return np.array([one for one, _ in pairs]), np.array([other for _, other in pairs])
