"""What is told of steps and episodes beside returns and lengths: fields of a state, and costs of constraints.

Functions that record a step report too where there is something to report; where there is nothing, they are what they
are without this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.replay import PLACE
from velocirl.program.counting.episodes import add_episode
from velocirl.program.rows.recording import STEP, keep_costs, remember, settle


class Reported(NamedTuple):
    """What there is to tell."""

    fields: tuple[str, ...] = ()  # of the state in which an episode ended
    constraints: int = 0  # whose costs of an episode are told, and whose violations are counted in each step
    costs: bool = False  # whether rows have those of their steps


class Endings(NamedTuple):
    """The states in which episodes ended, and what is kept of them."""

    state: Any  # (copies,) records, of the episode that ended last
    values: Any  # (rows, agents, steps, copies of each): fields, sum of costs, each cost; violations of each step


Recording = tuple[Callable[..., Any], tuple[Any, ...]]  # a function of an index, and its last arguments


def keeping(fields: Sequence[str]) -> Callable[..., Any]:
    """`keep(endings, i, s, t, n)`: write the fields of copy i's last state where they belong."""
    keep = keep_nothing
    for place, name in enumerate(fields):
        keep = _keeping_one(keep, place, name)
    return keep


def keep_nothing(endings, i, s, t, n):
    """Of an environment that reports nothing."""


def _keeping_one(others: Callable[..., Any], place: int, name: str) -> Callable[..., Any]:
    def keep(endings, i, s, t, n):
        others(endings, i, s, t, n)
        endings.values[place, s, t, n] = endings.state[i][name]

    return keep


def reporting(reported: Reported) -> Callable[..., Any]:
    """`report(told, endings, i, t)`: what is kept of copy i after step t, and where its episode ended with it."""
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
    """What records a step of a rollout, see `recording.settle`."""
    record = settle_with_costs if reported.costs else settle
    if not reported.fields and not reported.constraints:
        return record, ()
    report = reporting(reported)

    def settle_and_report(i, r, t, told, rollout, log, endings):
        record(i, r, t, told, rollout, log)
        report(told, endings, i, t)

    return settle_and_report, (_complete(endings),)


def settle_with_costs(i, r, t, told, rollout, log):
    """The same with what the step cost."""
    settle(i, r, t, told, rollout, log)
    keep_costs(rollout.rows[i, t], told, i)


def remembering(
    reported: Reported, endings: Endings, remember: Callable[..., Any] = remember, sums: Any = None
) -> Recording:
    """What records a step into a memory, see `recording.remember`; episodes are added to `sums` (copies, ...)."""

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
    """The same with an array in the place of states that nobody sees; nothing is read from it."""
    return endings._replace(state=endings.values) if endings.state is None else endings
