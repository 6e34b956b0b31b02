"""Metrics of a run: one line of JSON per row, appended during training and rewound when the run resumes."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, SupportsFloat

import numpy as np

from velocirl.engine.disk.confined import ConfinedPath, NotPlainFileError
from velocirl.engine.disk.files import parse_json, plain_handle, read_plain
from velocirl.engine.disk.writing import strict_json, write_whole

MOST_BYTES = 2**31  # some millions of rows
# Names of metrics that the library itself reads, as in Stable-Baselines3.
STEP, ELAPSED = "time/total_timesteps", "time/time_elapsed"
RETURN, EVALUATION, DEVIATION = "rollout/ep_rew_mean", "eval/mean_reward", "eval/std_reward"
Row = dict[str, int | float | None]


class DamagedMetricsError(ValueError):
    """Error for a line that is not a row of metrics; the message names file and line."""


class MetricsLog:
    """Metrics file of a run, open for appending. Opening drops a last line torn by a kill."""

    def __init__(self, path: str | Path | ConfinedPath) -> None:
        self.path = path
        self._handle = self._open()
        content = read_plain(self.path, MOST_BYTES)
        self._size = content.rfind(b"\n") + 1
        os.ftruncate(self._handle, self._size)

    def append(self, row: Mapping[str, SupportsFloat | None]) -> None:
        """Append a row, which must contain its step; a non-finite value is stored as null."""
        if not isinstance(row.get(STEP), int | np.integer):
            raise ValueError(f"a row must have its step, an integer, as {STEP!r}; got {row.get(STEP)!r}")
        line = f"{strict_json({name: _plain(name, figure) for name, figure in row.items()})}\n".encode()
        written, reason = 0, "the disk is full"
        try:
            written = os.write(self._handle, line)
        except OSError as error:
            reason = error.strerror or reason
        if written != len(line):
            os.ftruncate(self._handle, self._size)  # half a line would corrupt the next one
            raise OSError(f"a row could not be added to {self.path} ({reason}); the rows before it are kept")
        self._size += written

    def rewind(self, step: int) -> None:
        """Drop the rows after a step, so that a run resumed there writes each of them once.

        An invalid line, as a power failure may leave one, is dropped too with a warning: lost metrics must not prevent
        resuming.
        """
        kept: list[bytes] = []
        for number, line in enumerate(read_plain(self.path, MOST_BYTES).splitlines(keepends=True), 1):
            try:
                if _step(_parse(self.path, number, line)) <= step:
                    kept.append(line)
            except DamagedMetricsError as error:
                warnings.warn(f"{error}; it is left out", stacklevel=2)
        os.close(self._handle)
        write_whole(self.path, kept)
        self._handle = self._open()
        self._size = sum(map(len, kept))

    def sync(self) -> None:
        """Wait until every row is on disk; called before a checkpoint, whose step the rows must reach."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Close the file; no rows can be appended after it."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        return plain_handle(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def read_rows(path: str | Path | ConfinedPath) -> list[Row]:
    """Read all rows of a metrics file; only an unterminated last line, torn or just being written, is omitted."""
    try:
        *lines, _ = read_plain(path, MOST_BYTES).split(b"\n")
    except (ValueError, NotPlainFileError) as error:
        raise DamagedMetricsError(str(error)) from error
    return [_parse(path, number, line) for number, line in enumerate(lines, 1)]


def _parse(path: object, number: int, line: bytes) -> Row:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise DamagedMetricsError(f"{path}, line {number}: not a row of figures ({error})") from error
    if not isinstance(row, dict) or not all(type(figure) in (int, float, type(None)) for figure in row.values()):
        raise DamagedMetricsError(f"{path}, line {number}: a row must be an object of numbers and nulls")
    if type(row.get(STEP)) is not int:
        raise DamagedMetricsError(f"{path}, line {number}: the row has no step ({STEP!r})")
    return row


def _step(row: Row) -> int:
    step = row[STEP]
    assert isinstance(step, int)  # noqa: S101 - for the type checker: no row is read without a step
    return step


def _plain(name: str, figure: Any) -> int | float | None:
    """Convert a value to JSON's types."""
    if figure is None:
        return None
    if isinstance(figure, bool | int | np.integer | np.bool_):
        return int(figure)
    if isinstance(figure, float | np.floating):
        return float(figure) if math.isfinite(figure) else None
    raise TypeError(f"the figure {name!r} must be a number or None, got a {type(figure).__name__}")
