"""Units of replay iterations that are called once for all rows: rounds, draws and updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.buffers.n_step import fill_transition, follow, follow_costs
from velocirl.buffers.replay import PLACE, written
from velocirl.engine.compiler.units import call_unit
from velocirl.engine.random import bits
from velocirl.program.clock import FAULT
from velocirl.program.pace import beta_at, exploration_at
from velocirl.program.pace import updates_due as due_after
from velocirl.program.rows.recording import STEP


def begin_round(arguments, step, number, place):  # noqa: ARG001 - as every unit
    """Begin round `number` of the iteration; returns 1 where actions are random."""
    pace, clock, exploration = arguments
    clock[STEP] = number
    exploration[0] = exploration_at(step, pace[0])
    return 1 if step < pace[0].learning_starts else 0


def end_round(arguments, step, stop, place):  # noqa: ARG001
    """Return the run's step count after a round that began at `step`."""
    return step + arguments[0]


def updates_due(arguments, step, stop, place):  # noqa: ARG001
    """Return the number of updates that are due after `step` steps of the run."""
    pace, copies = arguments
    return due_after(step, copies, pace[0])


def begin_update(arguments, step, stop, place):  # noqa: ARG001
    """Set the exponent of the importance weights; returns the number of the next update."""
    pace, beta, updates = arguments
    beta[0] = beta_at(step, pace[0])
    return updates[0] + 1


def call_each(arguments, first, stop, place):  # noqa: ARG001
    """Call units that may fail, such as those that call Python. Where one does, nothing more is learned."""
    frames, outcome = arguments
    for k in range(len(frames)):
        if call_unit(frames[k, 0], first, frames[k, 1], 0) != 0:
            outcome[FAULT] = 1
    return 0


def no_costs(row, rows, copies, place, last, gamma):
    """Do nothing: the algorithm reads no costs."""


def drawn_costs(row, rows, copies, place, last, gamma):
    """Add up the costs of the steps of a sampled record."""
    follow_costs(rows, copies, place, last, gamma, row.costs)


def skip(rng, count):
    """Skip `count` random numbers: other processes draw their rows of a batch with them, from the same stream."""
    for _ in range(count):
        bits(rng)


def drawing(select: Callable[..., Any], find_costs: Callable[..., Any]) -> Callable[..., Any]:
    """Return `draw(arguments, first, stop, place)`: sample the records of a batch, with their n-step returns."""

    def draw(arguments, first, stop, place):  # noqa: ARG001
        book, counts, rng, others, beta, rows, copies, n_step, pace, batch, drawn = arguments
        skip(rng, others[0])
        select(book, counts, rng, beta[0], batch.places, batch.weights)
        skip(rng, others[1])
        for b in range(first, stop):
            reward, discount, last = follow(rows, counts, copies, batch.places[b], n_step, pace[0].gamma)
            batch.rewards[b] = reward
            batch.discounts[b] = discount
            batch.lasts[b] = last
            find_costs(drawn[b], rows, copies, batch.places[b], last, pace[0].gamma)
        return 0

    return draw


def entering(enter: Callable[..., Any]) -> Callable[..., Any]:
    """Return the unit that counts a group of records already written to the ring."""

    def run(arguments, first, stop, place):  # noqa: ARG001
        book, counts, capacity, size = arguments
        begin = counts[PLACE]
        written(counts, capacity, size)
        enter(book, counts, begin, size)
        return 0

    return run


def revising(revise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the unit that ends update `number` and revises priorities; it returns 1 where the update failed."""

    def run(arguments, number, stop, place):  # noqa: ARG001
        book, counts, batch, drawn, updates, outcome = arguments
        if outcome[FAULT] != 0:
            return 1
        for b in range(len(drawn)):
            batch.errors[b] = drawn[b].error
        revise(book, counts, batch.places, batch.errors)
        updates[0] = number
        return 0

    return run


def fetch(row, stored, last, reward, discount, weight):
    """Copy a sampled record to its row of the batch."""
    fill_transition(row, stored, last, reward, discount)
    row.weight = weight


def fetch_with_next(row, stored, last, reward, discount, weight):
    """Copy a sampled record to its row of the batch, with the next action."""
    fetch(row, stored, last, reward, discount, weight)
    for k in range(len(row.next_action)):
        row.next_action[k] = last.next_action[k]
    row.has_next = last.has_next
