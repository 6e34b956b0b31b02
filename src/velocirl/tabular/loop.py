"""One round of a tabular algorithm: step, observe, choose the next action, learn from the last step.

Scalar functions for one environment are composed into loops over a block of environments. A round consists of a few
units. The environment's unit does not depend on tables, and `settling` does not depend on the environment. All choices
and values of a round use the table before the round's updates. The updates follow one after another in the order of the
environments. So if several environments were in the same state, the experience of each counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.compiler.counters import (
    ALWAYS,
    FIRST_KIND,
    PLACES,
    TIMING,
    WHOLE,
    Count,
    glance,
    lap,
    start,
    turn,
)  # fmt: skip
from velocirl.engine.compiler.registers import fetch_add, mailbox_read, row
from velocirl.engine.compiler.units import call_unit
from velocirl.program.rows.recording import FAULT_IN_REWARD, FAULT_IN_STATE
from velocirl.tabular.memory import UNKNOWN
from velocirl.tabular.tables.exploring import Exploring
from velocirl.tabular.tables.rules import Rule
from velocirl.tabular.tables.table import ROWS_USED, mark

KEPT = 128  # last episodes of a call that are kept; a power of 2
# Offsets in a tally.
ERRORS, ROUNDS, ENDED, FAULT, FAULTY_COPY, FAULTY_ROUND = range(6)
TALLY = 8  # one cache line
TICKET = 0  # offset in the `work` that threads share: the first round that is not taken yet
# Timed phases. A step of one environment takes tens of nanoseconds and a round some microseconds: few are timed.
ROUND, EVERY = FIRST_KIND, 61
POLICY, ENVIRONMENT, UPDATE, EXCHANGED = range(PLACES, PLACES + 4)
COUNTS = (
    Count("policy", POLICY, ROUND),
    Count("environment", ENVIRONMENT, ROUND),
    Count("update", UPDATE, ROUND),
    Count("update", EXCHANGED, ALWAYS),
)
# Offsets of the units of a round.
ADVANCE, SETTLE, EXCHANGE, UNITS = range(4)
FIRST_LOOK = -1  # in place of a round's number: there is no last step to learn from


class Pace(NamedTuple):
    """Schedule of some rounds; rates change linearly from their first value to the last."""

    rounds: int
    chunk: int  # rounds that a thread takes at a time
    fullest: int  # rows in use at which the table must grow before the next round
    step: float  # learning rate,
    step_change: float  # per round
    rate: float  # exploration rate
    rate_change: float
    gamma: float

    def shared_by(self, workers: int) -> Pace:
        """Return the schedule of workers with separate rounds: `workers` times as many, each one worker's part."""
        step_change, rate_change = self.step_change / workers, self.rate_change / workers
        return self._replace(rounds=self.rounds * workers, step_change=step_change, rate_change=rate_change)


def pace_type(dtype: Any) -> np.dtype[Any]:
    """Return the record type of a pace, for a table of this dtype."""
    kinds = {"rounds": np.int64, "chunk": np.int64, "fullest": np.int64, "rate": np.float32, "rate_change": np.float32}
    return np.dtype([(name, kinds.get(name, dtype)) for name in Pace._fields])


def moment_type(dtype: Any) -> np.dtype[Any]:
    """Return the record type of the rates in one round."""
    return np.dtype([("gamma", dtype), ("step", dtype), ("rate", np.float32)])


class Current(NamedTuple):
    """State that a block of environments keeps from round to round, a row for each."""

    place: NDArray[np.uint64]  # row of the current state
    next_place: NDArray[np.uint64]
    next_action: NDArray[np.int32]
    ahead: NDArray[Any]  # the value of the next state
    coin: NDArray[np.int8]  # the set of values that is updated
    rng: NDArray[Any]  # rows
    window: NDArray[Any]  # records: the last steps, for multi-step updates
    episodes: NDArray[Any]  # (KEPT,) EPISODE, ring of the last ones
    tally: NDArray[np.float64]  # (TALLY,) of this call
    counters: NDArray[np.int64]  # (ROW,) see `counters`


class Rows(NamedTuple):
    """Environment inputs and outputs, a row for each, compiled or in Python."""

    observation: NDArray[Any]
    final_observation: NDArray[Any]
    mask: NDArray[Any]
    final_mask: NDArray[Any]  # of a truncated episode; zeros where unknown: nothing is learned from it then
    action: NDArray[Any]
    reward: NDArray[Any]
    terminated: NDArray[Any]
    truncated: NDArray[Any]
    episode_return: NDArray[Any]
    episode_length: NDArray[Any]
    final_state: NDArray[Any]  # records; a single number if no fields are reported


class Rounds(NamedTuple):
    """Arguments of a thread that takes rounds."""

    units: NDArray[np.int64]  # (UNITS,) their frames; 0 for a missing unit
    first: int  # environment of this thread in the fleet, and the one after its last
    stop: int
    counts: NDArray[np.int64]  # the table's counts
    tally: NDArray[np.float64]  # see `Current`
    counters: NDArray[np.int64]
    pace: NDArray[Any]  # (1,) see `pace_type`
    moment: NDArray[Any]  # (1,) see `moment_type`
    work: NDArray[np.int64]  # shared by threads


class Scalars(NamedTuple):
    """Functions for one environment after a step, the same on every device."""

    look: Callable[..., Any]  # (observation, table, current, i, t) -> the row of the observed state
    decide: Callable[..., Any]  # (copies, table, current, rate, i): choose the next action, value the observed state
    look_back: Callable[..., Any]  # (copies, table, current, rate, i, t): value the last state of a truncated episode


def scalars(rule: Rule, exploring: Exploring, encode: Callable[..., Any], find: Callable[..., Any]) -> Scalars:
    """Compose the functions for one environment; `encode` numbers the states, `find` finds their rows."""
    choose, legal, follow, tosses = exploring.choose, exploring.legal, rule.follow, rule.sets > 1

    def look(observation, table, current, i, t):
        state = encode(observation)
        if state < 0:
            tell(current.tally, FAULT_IN_STATE, i, t)
            state = 0
        return find(table, state)

    def decide(copies, table, current, rate, i):
        place, mask = current.next_place[i], row(copies.mask, i)
        coin = np.int8(random.bits(row(current.rng, i)) >> 63) if tosses else np.int8(0)
        action, best = choose(table.rows, place, mask, row(current.rng, i), rate)
        current.ahead[i] = follow(table.rows, place, mask, action, best, rate, coin)
        current.next_action[i] = action
        current.coin[i] = coin

    def look_back(copies, table, current, rate, i, t):
        place, mask = look(row(copies.final_observation, i), table, current, i, t), row(copies.final_mask, i)
        action, best = choose(table.rows, place, mask, row(current.rng, i), rate)
        current.ahead[i] = follow(table.rows, place, mask, action, best, rate, current.coin[i])
        known = False
        for a in range(len(mask)):
            known |= legal(mask, a)
        current.coin[i] = current.coin[i] if known else UNKNOWN

    return Scalars(look, decide, look_back)


def settling(
    rule: Rule,
    exploring: Exploring,
    encode: Callable[..., Any],
    find: Callable[..., Any],
    remember: Callable[..., Any],
    report: Sequence[str] = (),
    *,
    marks: bool = False,
) -> Callable[..., Any]:
    """Compose `settle((copies, table, current, moment), first, stop, place)`, which follows a round's steps.

    A range of environments observes, chooses, and learns from its last step. `place` is the number of the round, or
    FIRST_LOOK. If rows get `marks`, the rows of the states left are marked. Rows of earlier steps still in a window
    must be marked before.
    """
    note = noting(report)
    look, decide, look_back = scalars(rule, exploring, encode, find)

    def settle(arguments, first, stop, place):
        copies, table, current, moment = arguments
        gamma, step, rate = moment[0].gamma, moment[0].step, moment[0].rate
        begin, end, t = np.uint64(first), np.uint64(stop), max(place, 0)
        tally, counters, learns = current.tally, current.counters, place != FIRST_LOOK
        timed = learns and counters[TIMING] != 0
        since = glance(timed)
        if learns:
            for i in range(begin, end):
                if copies.terminated[i] or copies.truncated[i]:
                    note(copies, current, i, t)
        for i in range(begin, end):
            current.next_place[i] = look(row(copies.observation, i), table, current, i, t)
        for i in range(begin, end):
            decide(copies, table, current, rate, i)
        if learns:
            for i in range(begin, end):
                if copies.truncated[i] and not copies.terminated[i]:
                    look_back(copies, table, current, rate, i, t)
            since = lap(counters, POLICY, since, timed)
            errors, check = np.float32(0), np.float32(0)
            for i in range(begin, end):
                reward, terminated, truncated = copies.reward[i], copies.terminated[i], copies.truncated[i]
                ahead = current.ahead[i] * 0 if terminated else current.ahead[i]
                over = terminated or truncated
                if marks:
                    mark(table, current.place[i])
                errors += abs(remember(table.rows, current, i, copies.action[i], reward, ahead, over, gamma, step))
                check += reward * 0
                current.place[i] = current.next_place[i]
                copies.action[i] = current.next_action[i]
            tally[ERRORS] += errors
            lap(counters, UPDATE, since, timed)
            if check != 0:
                for i in range(begin, end):
                    if copies.reward[i] * 0 != 0:
                        tell(tally, FAULT_IN_REWARD, i, t)
        else:
            for i in range(begin, end):
                current.place[i] = current.next_place[i]
                copies.action[i] = current.next_action[i]
        return 0

    return settle


def note_end(copies, current, i, t):
    """Record an episode that ended."""
    number = np.int64(current.tally[ENDED])
    episode = current.episodes[number & (KEPT - 1)]
    episode.step = t
    episode.copy = i
    episode.total = copies.episode_return[i]
    episode.length = copies.episode_length[i]
    current.tally[ENDED] = number + 1


def noting(report: Sequence[str]) -> Callable[..., Any]:
    """Compose a function that records an episode with the reported fields of its last state."""
    keep = note_end
    for name in report:
        keep = _noting_one(keep, name, reported(name))
    return keep


def _noting_one(others: Callable[..., Any], name: str, place: str) -> Callable[..., Any]:
    def note_and_report(copies, current, i, t):
        current.episodes[np.int64(current.tally[ENDED]) & (KEPT - 1)][place] = copies.final_state[i][name]
        others(copies, current, i, t)

    return note_and_report


def reported(name: str) -> str:
    """Return the field name of a reported value in the record of an episode."""
    return f"state_{name}"


def tell(tally, kind, i, t):
    """Record the first fault."""
    if tally[FAULT] == 0:
        tally[FAULT] = kind
        tally[FAULTY_COPY] = i
        tally[FAULTY_ROUND] = t


def take_rounds(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Take a thread's part of some rounds, in its block of a fleet.

    Threads claim rounds as they become free, so that a faster one takes more. Threads with tables of their own exchange
    them after each chunk of rounds (see `tables.replicas`).
    """
    rounds = arguments[0]
    units, counters, tally = rounds.units, rounds.counters, rounds.tally
    pace, moment = rounds.pace[0], rounds.moment[0]
    count, begun = rounds.stop - rounds.first, glance(True)
    moment.gamma = pace.gamma
    ticket = fetch_add(rounds.work, TICKET, pace.chunk)
    while ticket < pace.rounds:
        for t in range(ticket, min(ticket + pace.chunk, pace.rounds)):
            if mailbox_read(rounds.counts, ROWS_USED) > pace.fullest:
                lap(counters, WHOLE, begun, True)
                return 0
            timed = turn(counters, ROUND, EVERY)
            counters[TIMING] = timed
            since = start(counters, ROUND, timed)
            call_unit(units[ADVANCE], rounds.first, rounds.stop, 0)
            lap(counters, ENVIRONMENT, since, timed)
            moment.step = pace.step + t * pace.step_change
            moment.rate = pace.rate + t * pace.rate_change
            call_unit(units[SETTLE], 0, count, t)
            tally[ROUNDS] += 1
        since = glance(True)
        if units[EXCHANGE] != 0:
            call_unit(units[EXCHANGE], 0, 1, 0)
        lap(counters, EXCHANGED, since, True)
        ticket = fetch_add(rounds.work, TICKET, pace.chunk)
    lap(counters, WHOLE, begun, True)
    return 0
