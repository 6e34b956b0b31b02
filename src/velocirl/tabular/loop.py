"""One round of a tabular algorithm: every copy moves, looks, chooses its next action, and its last one is learnt from.

Scalar functions for one copy, composed into loops over a block of them. All copies choose and are valued by the table
as it is before the updates of a round; these are made one after another in the order of the copies, so that where
several copies were in the same state, each one's experience counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.compiler.registers import fetch_add, mailbox_read, row
from velocirl.engine.lifecycle import Lifecycle
from velocirl.learners.counters import (
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
from velocirl.learners.recording import FAULT_IN_REWARD, FAULT_IN_STATE
from velocirl.tabular.memory import UNKNOWN
from velocirl.tabular.tables.exploring import Exploring
from velocirl.tabular.tables.rules import Rule
from velocirl.tabular.tables.table import ROWS_USED

KEPT = 128  # episodes that are kept of a call, the last ones; a power of 2
# The places of a tally.
ERRORS, ROUNDS, ENDED, FAULT, FAULTY_COPY, FAULTY_ROUND = range(6)
TALLY = 8  # a line of the cache
TICKET = 0  # the place in the `work` that threads share: the first round that nobody has taken yet
# What is counted. A step of a copy takes tens of nanoseconds, and a round of all some microseconds: few are timed.
ROUND, EVERY = FIRST_KIND, 61
POLICY, ENVIRONMENT, UPDATE, EXCHANGE = range(PLACES, PLACES + 4)
COUNTS = (
    Count("policy", POLICY, ROUND),
    Count("environment", ENVIRONMENT, ROUND),
    Count("update", UPDATE, ROUND),
    Count("update", EXCHANGE, ALWAYS),
)


class Pace(NamedTuple):
    """The numbers of some rounds; rates go from their first value to the last in a straight line."""

    rounds: int
    chunk: int  # rounds that a thread takes at a time
    fullest: int  # rows of the table at which it has to grow before the next round
    step: float  # the learning rate,
    step_change: float  # per round
    rate: float  # of exploring
    rate_change: float
    gamma: float

    def shared_by(self, workers: int) -> Pace:
        """The same for workers who take rounds by themselves: so many times as many, each a part of one."""
        step_change, rate_change = self.step_change / workers, self.rate_change / workers
        return self._replace(rounds=self.rounds * workers, step_change=step_change, rate_change=rate_change)


class Current(NamedTuple):
    """What a block of copies keeps from round to round, a row for each."""

    place: NDArray[np.uint64]  # of the state that is seen
    next_place: NDArray[np.uint64]
    next_action: NDArray[np.int32]
    ahead: NDArray[Any]  # the value of what comes next
    coin: NDArray[np.int8]  # the set of values that learns
    rng: NDArray[Any]  # rows
    window: NDArray[Any]  # records: the last steps, where more than one counts
    # Rows: what may be done in the last state of an episode that was cut short. Zeros where that is not known; nothing
    # is learnt from that step then.
    last_mask: NDArray[Any]
    episodes: NDArray[Any]  # (KEPT,) EPISODE, the last ones in a ring
    tally: NDArray[np.float64]  # (TALLY,) of this call
    counters: NDArray[np.int64]  # (ROW,) see `counters`


class Stages(NamedTuple):
    """A round of a block of copies, after what the environment does."""

    begin: Callable[..., Any]  # (copies, table, current, rate): look and choose for the first time
    settle: Callable[..., Any]  # (copies, table, current, gamma, step, rate, t): look, choose, learn from the last step


class Scalars(NamedTuple):
    """What is done for one copy after a step, on every device alike."""

    look: Callable[..., Any]  # (observation, table, current, i, t) -> the place of what is seen
    decide: Callable[..., Any]  # (copies, table, current, rate, i): choose the next action, value what is seen
    look_back: Callable[..., Any]  # (copies, table, current, rate, i, t): value the last state of an episode cut short


def scalars(rule: Rule, exploring: Exploring, encode: Callable[..., Any], find: Callable[..., Any]) -> Scalars:
    """Compose what is done for one copy; `encode` numbers the states, `find` finds their rows."""
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
        place, mask = look(row(copies.final_observation, i), table, current, i, t), row(current.last_mask, i)
        action, best = choose(table.rows, place, mask, row(current.rng, i), rate)
        current.ahead[i] = follow(table.rows, place, mask, action, best, rate, current.coin[i])
        known = False
        for a in range(len(mask)):
            known |= legal(mask, a)
        current.coin[i] = current.coin[i] if known else UNKNOWN

    return Scalars(look, decide, look_back)


def stages(
    rule: Rule,
    exploring: Exploring,
    encode: Callable[..., Any],
    find: Callable[..., Any],
    remember: Callable[..., Any],
    report: Sequence[str] = (),
) -> Stages:
    """Compose the round of an algorithm; `remember` (see `tabular_memory`) learns from a step."""
    note = noting(report)
    look, decide, look_back = scalars(rule, exploring, encode, find)

    def begin(copies, table, current, rate):
        for i in range(np.uint64(len(copies.reward))):
            current.next_place[i] = look(row(copies.observation, i), table, current, i, 0)
            decide(copies, table, current, rate, i)
            current.place[i] = current.next_place[i]
            copies.action[i] = current.next_action[i]

    def settle(copies, table, current, gamma, step, rate, t):
        stop, tally, counters = np.uint64(len(copies.reward)), current.tally, current.counters
        timed = counters[TIMING] != 0
        since = glance(timed)
        for i in range(np.uint64(0), stop):
            if copies.terminated[i] or copies.truncated[i]:
                note(copies, current, i, t)
        for i in range(np.uint64(0), stop):
            current.next_place[i] = look(row(copies.observation, i), table, current, i, t)
        for i in range(np.uint64(0), stop):
            decide(copies, table, current, rate, i)
        for i in range(np.uint64(0), stop):
            if copies.truncated[i] and not copies.terminated[i]:
                look_back(copies, table, current, rate, i, t)
        since = lap(counters, POLICY, since, timed)
        errors, check = np.float32(0), np.float32(0)
        for i in range(np.uint64(0), stop):
            reward, terminated, truncated = copies.reward[i], copies.terminated[i], copies.truncated[i]
            ahead = current.ahead[i] * 0 if terminated else current.ahead[i]
            over = terminated or truncated
            errors += abs(remember(table.rows, current, i, copies.action[i], reward, ahead, over, gamma, step))
            check += reward * 0
            current.place[i] = current.next_place[i]
            copies.action[i] = current.next_action[i]
        tally[ERRORS] += errors
        lap(counters, UPDATE, since, timed)
        if check != 0:
            for i in range(np.uint64(0), stop):
                if copies.reward[i] * 0 != 0:
                    tell(tally, FAULT_IN_REWARD, i, t)

    return Stages(begin, settle)


def note_end(copies, current, i, t):
    """Keep what is told of an episode that ended."""
    number = np.int64(current.tally[ENDED])
    episode = current.episodes[number & (KEPT - 1)]
    episode.step = t
    episode.copy = i
    episode.total = copies.episode_return[i]
    episode.length = copies.episode_length[i]
    current.tally[ENDED] = number + 1


def noting(report: Sequence[str]) -> Callable[..., Any]:
    """What keeps what is told of an episode, with the fields of its last state that are reported."""
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
    """The name under which a field that is reported stands in the record of an episode."""
    return f"state_{name}"


def tell(tally, kind, i, t):
    """Keep the first fault."""
    if tally[FAULT] == 0:
        tally[FAULT] = kind
        tally[FAULTY_COPY] = i
        tally[FAULTY_ROUND] = t


def no_exchange(common, table):
    """Of threads that learn into one table."""


def fleet_loop(
    life: Lifecycle,
    legal: Callable[..., Any] | None,
    parts: Stages,
    exchange: Callable[..., Any] = no_exchange,
) -> Callable[..., Any]:
    """`run(copies, table, current, pace, work, common)`: a thread's share of some rounds, of its block of a fleet.

    Threads take rounds as they come to them, so that a faster one takes more; those with tables of their own exchange
    them after each chunk of rounds (see `tables.replicas`).
    """
    move, conclude, show = life.move, life.conclude, life.show
    settle = parts.settle
    keep_mask = last_mask_of(legal)

    def run(copies, table, current, pace, work, common):
        stop = np.uint64(len(copies.reward))
        counters, begun = current.counters, glance(True)
        first = fetch_add(work, TICKET, pace.chunk)
        while first < pace.rounds:
            for t in range(first, min(first + pace.chunk, pace.rounds)):
                if mailbox_read(table.counts, ROWS_USED) > pace.fullest:
                    lap(counters, WHOLE, begun, True)
                    return
                timed = turn(counters, ROUND, EVERY)
                counters[TIMING] = timed
                since = start(counters, ROUND, timed)
                for i in range(np.uint64(0), stop):
                    move(copies, i)
                for i in range(np.uint64(0), stop):
                    conclude(copies, i)
                    keep_mask(copies, current, i)
                for i in range(np.uint64(0), stop):
                    show(copies, i)
                lap(counters, ENVIRONMENT, since, timed)
                settle(
                    copies, table, current, pace.gamma, pace.step + t * pace.step_change,
                    pace.rate + t * pace.rate_change, t,
                )  # fmt: skip
                current.tally[ROUNDS] += 1
            since = glance(True)
            exchange(common, table)
            lap(counters, EXCHANGE, since, True)
            first = fetch_add(work, TICKET, pace.chunk)
        lap(counters, WHOLE, begun, True)

    return run


def last_mask_of(legal: Callable[..., Any] | None) -> Callable[..., Any]:
    """`keep_mask(copies, current, i)`: what might have been done in the last state of an episode that was cut short."""
    if legal is None:

        def nothing_to_keep(copies, current, i):
            pass

        return nothing_to_keep
    known: Callable[..., Any] = legal

    def keep_mask(copies, current, i):
        if copies.truncated[i] and not copies.terminated[i]:
            known(copies.final_state[i], copies.params[i], row(current.last_mask, i))

    return keep_mask
