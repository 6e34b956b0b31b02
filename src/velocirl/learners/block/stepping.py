"""Drivers of learning from a memory: compiled loops that step the copies, remember, draw batches and learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.n_step import follow, follow_costs
from velocirl.buffers.replay import written
from velocirl.engine.compiler.units import call_unit
from velocirl.engine.random import bits
from velocirl.learners.block.driver import FAULT
from velocirl.learners.counting.counters import TIMING, glance, lap, start, turn
from velocirl.learners.counting.phases import (
    BUFFER,
    ENVIRONMENT,
    EVERY_ROUND,
    EVERY_UPDATE,
    LEARNING,
    POLICY,
    ROUND,
    SAMPLE,
    STEPPING,
    UPDATE,
)  # fmt: skip
from velocirl.learners.pace import beta_at, exploration_at, updates_due
from velocirl.learners.rows.recording import STEP
from velocirl.networks.mlp import ROWS

# The units of a step and of a batch, by their places.
LOOK, RANDOM, FORWARD, CHECK, ACT, COMMAND, REMEMBER, ENTER, DRAW, LEVEL, REVISE, ADVANCE, UNITS = range(13)


class Stepping(NamedTuple):
    """Units and arrays of the drivers of steps and batches."""

    units: NDArray[np.int64]  # (UNITS,) their frames
    update: int  # the frame of the update
    decisions: NDArray[np.int64]  # (some, 2) the frames of what is decided by episodes before updates, and their stops
    counts: NDArray[np.int64]  # of the ring
    capacity: int
    copies: int
    all_copies: int  # of all processes
    rows: int  # of a batch, of those that this process draws
    clock: NDArray[np.int64]  # of which STEP counts the steps of the iteration
    exploration: NDArray[np.float32]  # (1,)
    beta: NDArray[np.float64]  # (1,)
    updates: NDArray[np.int64]  # (1,) of the run
    pace: NDArray[Any]  # (1,) PACE


def call(stepping, which, first, stop):
    """Call one of the units of a step."""
    return call_unit(stepping.units[which], first, stop, 0)


def decide(stepping, step, t):
    """All copies look, and act: at random before learning starts, which asks no network."""
    pace = stepping.pace[0]
    stepping.clock[STEP] = t
    stepping.exploration[0] = exploration_at(step, pace)
    for begin in range(0, stepping.copies, ROWS):
        end = min(begin + ROWS, stepping.copies)
        call(stepping, LOOK, begin, end)
        if step < pace.learning_starts:
            call(stepping, RANDOM, begin, end)
        else:
            call(stepping, FORWARD, begin, end)
            call(stepping, CHECK, begin, end)
            call(stepping, ACT, begin, end)
        call(stepping, COMMAND, begin, end)


def record(stepping):
    """Complete the records of a step."""
    call(stepping, REMEMBER, 0, stepping.copies)
    enter(stepping)


def enter(stepping):
    """Let the records of a step, which are complete, be ones to learn from."""
    first, copies = stepping.counts[0], stepping.copies
    written(stepping.counts, stepping.capacity, copies)
    call(stepping, ENTER, first, first + copies)


def decide_by_episodes(stepping):
    """What is decided by the episodes that ended; gives how many of its units failed."""
    failed = 0
    for k in range(len(stepping.decisions)):
        failed += call_unit(stepping.decisions[k, 0], 0, stepping.decisions[k, 1], 0)
    return failed


def learn(crew, stepping, step, due):
    """Run `due` updates after a step of all copies, at which the run has taken `step` steps."""
    counters, batch, begun = crew.counters, stepping.rows, stepping.updates[0]
    for number in range(begun + 1, begun + due + 1):
        if crew.outcome[FAULT] != 0.0:
            break
        timed = turn(counters, UPDATE, EVERY_UPDATE)
        counters[TIMING] = timed
        since = start(counters, UPDATE, timed)
        stepping.beta[0] = beta_at(step, stepping.pace[0])
        if number == begun + 1 and decide_by_episodes(stepping) != 0:
            crew.outcome[FAULT] = 1.0
        call(stepping, DRAW, 0, batch)
        if stepping.units[LEVEL] != 0 and call(stepping, LEVEL, 0, batch) != 0:
            crew.outcome[FAULT] = 1.0
        lap(counters, SAMPLE, since, timed)
        call_unit(stepping.update, 0, 0, number)
        since = glance(timed)
        if crew.outcome[FAULT] == 0.0:
            call(stepping, REVISE, 0, batch)
            stepping.updates[0] = number
        lap(counters, SAMPLE, since, timed)


def run_fleet(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """An iteration: `stop` steps of all copies after the first `first` of the run."""
    crew, stepping = arguments
    counters, begun = crew.counters, glance(True)
    learnt, step = counters[LEARNING], first
    for t in range(stop):
        timed = turn(counters, ROUND, EVERY_ROUND)
        since = start(counters, ROUND, timed)
        decide(stepping, step, t)
        since = lap(counters, POLICY, since, timed)
        call(stepping, ADVANCE, 0, stepping.copies)
        since = lap(counters, ENVIRONMENT, since, timed)
        record(stepping)
        lap(counters, BUFFER, since, timed)
        step += stepping.all_copies
        due = updates_due(step, stepping.all_copies, stepping.pace[0])
        if due > 0:
            since = glance(True)
            learn(crew, stepping, step, due)
            lap(counters, LEARNING, since, True)
    # What was not learning was stepping: that takes no look at the clock in each round.
    lap(counters, STEPPING, begun + counters[LEARNING] - learnt, True)
    return 0


def decide_only(arguments, first, stop, place):  # noqa: ARG001
    """The side of a step that comes before the environment's, where that steps in Python: step number `place`."""
    decide(arguments[0], first, place)
    return 0


def record_only(arguments, first, stop, place):  # noqa: ARG001
    """The side of a step that comes after the environment's."""
    record(arguments[0])
    return 0


def enter_only(arguments, first, stop, place):  # noqa: ARG001
    """The records of `stop` steps were written by somebody else, from the next place on."""
    for _ in range(stop):
        enter(arguments[0])
    return 0


def learn_only(arguments, first, stop, place):  # noqa: ARG001
    """`stop` updates, at which the run has taken `first` steps."""
    learn(arguments[0], arguments[1], first, stop)
    return 0


def no_costs(row, rows, copies, place, last, gamma):
    """Of an algorithm that does not read what steps cost."""


def drawn_costs(row, rows, copies, place, last, gamma):
    """What the steps of a record that was drawn cost."""
    follow_costs(rows, copies, place, last, gamma, row.costs)


def skip(rng, count):
    """Leave out so many numbers: those by which other processes draw their rows of a batch, from the same stream."""
    for _ in range(count):
        bits(rng)


def drawing(select: Callable[..., Any], find_costs: Callable[..., Any]) -> Callable[..., Any]:
    """`draw(arguments, first, stop, place)`: random records for a batch, and what followed them."""

    def draw(arguments, first, stop, place):  # noqa: ARG001
        book, counts, rng, others, beta, rows, copies, n_step, gamma, batch, drawn = arguments
        skip(rng, others[0])
        select(book, counts, rng, beta[0], batch.places, batch.weights)
        skip(rng, others[1])
        for b in range(first, stop):
            reward, discount, last = follow(rows, counts, copies, batch.places[b], n_step, gamma)
            batch.rewards[b] = reward
            batch.discounts[b] = discount
            batch.lasts[b] = last
            find_costs(drawn[b], rows, copies, batch.places[b], last, gamma)
        return 0

    return draw


def entering(enter: Callable[..., Any]) -> Callable[..., Any]:
    """`enter(arguments, first, stop, place)`: records were written to these places."""

    def run(arguments, first, stop, place):  # noqa: ARG001
        book, counts = arguments
        enter(book, counts, first, stop - first)
        return 0

    return run


def revising(revise: Callable[..., Any]) -> Callable[..., Any]:
    """`revise(arguments, first, stop, place)`: what the update found of the records of a batch."""

    def run(arguments, first, stop, place):  # noqa: ARG001
        book, counts, batch, drawn = arguments
        for b in range(first, stop):
            batch.errors[b] = drawn[b].error
        revise(book, counts, batch.places, batch.errors)
        return 0

    return run


def fetch(row, stored, last, reward, discount, weight):
    """A record that was drawn becomes a row of the batch."""
    row.reward = reward
    row.discount = discount
    row.weight = weight
    for k in range(len(row.action)):
        row.action[k] = stored.action[k]
    for k in range(len(row.mask)):
        row.mask[k] = stored.mask[k]
        row.next_mask[k] = last.next_mask[k]


def fetch_with_next(row, stored, last, reward, discount, weight):
    """The same, and what was done after it."""
    fetch(row, stored, last, reward, discount, weight)
    for k in range(len(row.next_action)):
        row.next_action[k] = last.next_action[k]
    row.has_next = last.has_next
