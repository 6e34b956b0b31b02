"""Trajectory as numbers in a file: comma-separated values, or NumPy arrays."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.trajectories.trajectory import Trajectory

NAMES, UNITS = "names", "units"  # arrays of an npz in addition to the columns


def as_csv(trajectory: Trajectory) -> bytes:
    """Return a row for each timestep, under headings of names and units; missing values are empty.

    Numbers have as many digits as an exact round trip needs.
    """
    columns = trajectory.columns()
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([one.heading for one in columns])
    table.writerows(zip(*(_words(one.values) for one in columns), strict=True))
    return text.getvalue().encode()


def as_npz(trajectory: Trajectory) -> bytes:
    """Return every column under its name, for `numpy.load`; `names` and `units` list them."""
    columns = trajectory.columns()
    arrays: dict[str, Any] = {one.name: one.values for one in columns}
    arrays |= {NAMES: np.array([one.name for one in columns]), UNITS: np.array([one.unit for one in columns])}
    for name in ("environment", "policy", "scenario"):
        arrays[name] = np.array(getattr(trajectory, name) or "")
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _words(values: NDArray[Any]) -> list[str]:
    """Return the shortest text of each number; a flag is 0 or 1, and a non-finite value is empty."""
    if values.dtype.kind == "b":
        values = values.astype(np.int8)
    words = values.astype(np.str_)
    return np.where(np.isfinite(values), words, "").tolist()
