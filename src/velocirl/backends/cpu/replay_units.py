"""Units of replay iterations that are called once for all rows: rounds, draws and updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.buffers.n_step import follow, follow_costs
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
    """Return the steps that the run has taken after a round that began at `step`."""
    return step + arguments[0]


def updates_due(arguments, step, stop, place):  # noqa: ARG001
    """Return how many updates are due when the run has taken `step` steps."""
    pace, copies = arguments
    return due_after(step, copies, pace[0])


def begin_update(arguments, step, stop, place):  # noqa: ARG001
    """Return the number of the update that comes next; set the exponent of its weights."""
    pace, beta, updates = arguments
    beta[0] = beta_at(step, pace[0])
    return updates[0] + 1


def call_unit_once(arguments, first, stop, place):
    """Call a unit that may fail, such as one that calls Python; where it does, nothing more is learned."""
    frame, outcome = arguments
    if call_unit(frame, first, stop, place) != 0:
        outcome[FAULT] = 1
    return 0


def no_costs(row, rows, copies, place, last, gamma):
    """Do nothing: the algorithm reads no costs."""


def drawn_costs(row, rows, copies, place, last, gamma):
    """Add up the costs of the steps of a sampled record."""
    follow_costs(rows, copies, place, last, gamma, row.costs)


def skip(rng, count):
    """Leave out so many numbers: those by which other processes draw their rows of a batch, from the same stream."""
    for _ in range(count):
        bits(rng)


def drawing(select: Callable[..., Any], find_costs: Callable[..., Any]) -> Callable[..., Any]:
    """`draw(arguments, first, stop, place)`: random records for a batch, and what followed them."""

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
    """Return the unit that adds a group of records to the ring, in which they lie already."""

    def run(arguments, first, stop, place):  # noqa: ARG001
        book, counts, capacity, size = arguments
        begin = counts[PLACE]
        written(counts, capacity, size)
        enter(book, counts, begin, size)
        return 0

    return run


def revising(revise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the unit that ends update `number`, with the errors of its batch; it returns 1 where that failed."""

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
