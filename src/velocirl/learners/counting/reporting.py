"""The fields of a state that an environment reports at the end of each episode: kept beside returns and lengths.

Functions that record a step report too where there is something to report; where there is nothing, they are what they
are without this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.recording import STEP, remember, settle


class Endings(NamedTuple):
    """The states in which episodes ended, and what is kept of them."""

    state: Any  # (copies,) records, of the episode that ended last
    values: Any  # (fields, agents, steps, copies of each)


Recording = tuple[Callable[..., Any], tuple[Any, ...]]  # a function of an index, and its last arguments


def keeping(fields: Sequence[str]) -> Callable[..., Any]:
    """`keep(state, values, s, t, n)`: write the fields of a state where they belong."""
    keep = keep_nothing
    for place, name in enumerate(fields):
        keep = _keeping_one(keep, place, name)
    return keep


def keep_nothing(state, values, s, t, n):
    """Of an environment that reports nothing."""


def _keeping_one(others: Callable[..., Any], place: int, name: str) -> Callable[..., Any]:
    def keep(state, values, s, t, n):
        others(state, values, s, t, n)
        values[place, s, t, n] = state[name]

    return keep


def reporting(fields: Sequence[str]) -> Callable[..., Any]:
    """`report(told, endings, i, t)`: keep the fields of copy i, where its episode ended in step t."""
    keep = keeping(fields)

    def report(told, endings, i, t):
        if told.terminated[i] or told.truncated[i]:
            copies = endings.values.shape[3]
            keep(endings.state[i], endings.values, i // copies, t, i % copies)

    return report


def settling(fields: Sequence[str], endings: Endings) -> Recording:
    """What records a step of a rollout, see `recording.settle`."""
    if not fields:
        return settle, ()
    report = reporting(fields)

    def settle_and_report(i, r, t, told, rollout, log, endings):
        settle(i, r, t, told, rollout, log)
        report(told, endings, i, t)

    return settle_and_report, (endings,)


def remembering(fields: Sequence[str], endings: Endings, record: Callable[..., Any] = remember) -> Recording:
    """What records a step into a memory, see `recording.remember`."""
    if not fields:
        return record, ()
    report = reporting(fields)

    def remember_and_report(i, r, t, sight, told, ring, log, endings):
        record(i, r, t, sight, told, ring, log)
        report(told, endings, i, t + ring.clock[STEP])

    return remember_and_report, (endings,)


def latest(ends: NDArray[Any], most: int, *logs: NDArray[Any]) -> list[list[Any]]:
    """What was logged of the last episodes that ended, in the order of their ends; see `recording.Log`."""
    places = np.flatnonzero(ends >= 0)[-most:]
    return [log.reshape(-1)[places].tolist() for log in logs]
