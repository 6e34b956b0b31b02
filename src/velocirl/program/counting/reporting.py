"""Values reported of steps and episodes besides returns and lengths: state fields and constraint costs.

The functions that record a step are extended only if there is something to report; otherwise they stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.replay import PLACE
from velocirl.program.counting.episodes import add_episode
from velocirl.program.rows.recording import STEP, keep_costs, remember, settle


class Reported(NamedTuple):
    """Kinds of values to report."""

    fields: tuple[str, ...] = ()  # of an episode's last state
    constraints: int = 0  # number of constraints: episode costs are reported, and violations counted in each step
    costs: bool = False  # whether rows store the costs of their steps


class Endings(NamedTuple):
    """Final states of episodes, and the values kept of them."""

    state: Any  # (environments,) records, of the episode that ended last
    values: Any  # (rows, agents, steps, environments of each): fields, sum of costs, each cost; violations of each step


Recording = tuple[Callable[..., Any], tuple[Any, ...]]  # a function of an index, and its last arguments


def keeping(fields: Sequence[str]) -> Callable[..., Any]:
    """Return `keep(endings, i, s, t, n)`: it stores the fields of environment i's last state."""
    keep = keep_nothing
    for place, name in enumerate(fields):
        keep = _keeping_one(keep, place, name)
    return keep


def keep_nothing(endings, i, s, t, n):
    """Do nothing: the environment reports no fields."""


def _keeping_one(others: Callable[..., Any], place: int, name: str) -> Callable[..., Any]:
    def keep(endings, i, s, t, n):
        others(endings, i, s, t, n)
        endings.values[place, s, t, n] = endings.state[i][name]

    return keep


def reporting(reported: Reported) -> Callable[..., Any]:
    """Return `report(told, endings, i, t)`: it stores environment i's values of step t, and of a finished episode."""
    keep, first, constraints = keeping(reported.fields), len(reported.fields), reported.constraints

    def report_end(told, endings, i, t):
        if told.terminated[i] or told.truncated[i]:
            copies = endings.values.shape[3]
            keep(endings, i, i // copies, t, i % copies)

    def report_all(told, endings, i, t):
        copies = endings.values.shape[3]
        s, n = i // copies, i % copies
        violated = np.float32(0)
        for k in range(constraints):
            violated += 1.0 if told.costs[i, k] > 0.0 else 0.0
        endings.values[first + 1 + constraints, s, t, n] = violated
        if told.terminated[i] or told.truncated[i]:
            keep(endings, i, s, t, n)
            total = np.float32(0)
            for k in range(constraints):
                total += told.episode_costs[i, k]
                endings.values[first + 1 + k, s, t, n] = told.episode_costs[i, k]
            endings.values[first, s, t, n] = total

    return report_all if constraints else report_end


def settling(reported: Reported, endings: Endings) -> Recording:
    """Return the function that records a step of a rollout, with its last arguments.

    See `program.rows.recording.settle`.
    """
    record = settle_with_costs if reported.costs else settle
    if not reported.fields and not reported.constraints:
        return record, ()
    report = reporting(reported)

    def settle_and_report(i, r, t, told, rollout, log, endings):
        record(i, r, t, told, rollout, log)
        report(told, endings, i, t)

    return settle_and_report, (_complete(endings),)


def settle_with_costs(i, r, t, told, rollout, log):
    """Record the result of environment i's step, including its costs."""
    settle(i, r, t, told, rollout, log)
    keep_costs(rollout.rows[i, t], told, i)


def remembering(
    reported: Reported, endings: Endings, remember: Callable[..., Any] = remember, sums: Any = None
) -> Recording:
    """Return the function that records a step in a replay buffer, with its last arguments.

    See `program.rows.recording.remember`; finished episodes are added to `sums` (environments, ...).
    """

    def remember_with_costs(i, r, t, sight, told, ring, log):
        remember(i, r, t, sight, told, ring, log)
        keep_costs(ring.rows[ring.counts[PLACE] + i], told, i)

    record = remember_with_costs if reported.costs else remember
    if not reported.fields and not reported.constraints and sums is None:
        return record, ()
    report = reporting(reported)

    def remember_and_report(i, r, t, sight, told, ring, log, endings):
        record(i, r, t, sight, told, ring, log)
        report(told, endings, i, t + ring.clock[STEP])

    def remember_and_add(i, r, t, sight, told, ring, log, endings, sums):
        remember_and_report(i, r, t, sight, told, ring, log, endings)
        add_episode(i, told, sums)

    if sums is not None:
        return remember_and_add, (_complete(endings), sums)
    return remember_and_report, (_complete(endings),)


def _complete(endings: Endings) -> Endings:
    """Return `endings` with an array in place of missing states; nothing is read from it."""
    return endings._replace(state=endings.values) if endings.state is None else endings
