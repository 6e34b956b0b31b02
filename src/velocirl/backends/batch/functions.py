"""Functions of one row or one agent that a batch program adds to an algorithm's functions.

Each is a function of an index; launches combine them, see `engine.targets.launching`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from velocirl.engine.compiler.columns import rows_at
from velocirl.program.clock import GATHERED, LOSS_SCALE, MINIBATCH, MINIBATCHES, NEXT_SCALE, STOPPED, goes_on


class Sums(NamedTuple):
    """Metric sums, with a row for each agent."""

    sums: Any  # (agents, slots) float64, of this batch: a standard deviation is a small difference of large sums
    totals: Any  # (agents, slots) float64, of an iteration
    seen: Any  # (agents, passes) int64, rows of an iteration
    means: Any  # (agents, metrics + 1) float64, of the batch so far; the last is its number of rows
    single: Any  # (agents, metrics + 1) `means` in single precision
    metric: Any  # (slots,) int64, metric of each slot


def share_of(i, rows, clock):
    """Return the factor of a sample in the mean gradient of its batch, with the loss scale."""
    return np.float32(clock.numbers[i // rows, LOSS_SCALE] / rows)


def whole(i, rows, clock):  # noqa: ARG001 - in the place of the function above
    """Return 1: the gradient is passed on unscaled."""
    return np.float32(1.0)


def scale_row(i, r, t, gradient, rows, clock):  # noqa: ARG001 - every function of an index has the same first arguments
    """Scale a sample's gradient, which several functions write, to its share of the batch mean."""
    row, share = gradient[i], share_of(i, rows, clock)
    for k in range(len(row)):
        row[k] *= share


def scale_rows(i, r, t, gradient, rows, clock):  # noqa: ARG001
    """Scale a sample's gradient of several rows to its share of the batch mean."""
    share = share_of(i, rows, clock)
    for q in range(gradient.shape[1]):
        row = gradient[i, q]
        for k in range(len(row)):
            row[k] *= share


def load_element(n, r, t, source, into, start, width):  # noqa: ARG001
    """Copy element n of a field of all rows to a network's inputs."""
    i = n // width
    j = n - i * width
    given = rows_at((source,), i, i, t)[0]
    into[i, start + j] = given[j]


def load_row(i, r, t, source, into, start):
    """Copy a field of a row to a network's inputs."""
    given = rows_at((source,), i, r, t)[0]
    for j in range(len(given)):
        into[i, start + j] = given[j]


def load_several(i, r, t, source, into, start):
    """Copy a field to a network's inputs, several rows for each sample; a field with one row is repeated."""
    given = rows_at((source,), i, r, t)[0]
    for q in range(into.shape[1]):
        one = given[q if len(given) > 1 else 0]
        for j in range(len(one)):
            into[i, q, start + j] = one[j]


def begin_batch(s, r, t, sums, rows, clock, learns):  # noqa: ARG001
    """Begin an update; `t` is 0 for the first update since the last optimizer step."""
    if t == 0:
        clock.numbers[s, LOSS_SCALE] = clock.numbers[s, NEXT_SCALE]
    clock.counts[s, MINIBATCH] += 1
    clock.counts[s, GATHERED] = 1 if t == 0 else clock.counts[s, GATHERED] + 1
    if learns and goes_on(clock, s):
        clock.counts[s, MINIBATCHES] += 1
    count = sums.means.shape[1]
    for m in range(count):
        sums.means[s, m] = 0.0
        sums.single[s, m] = 0.0
    sums.means[s, count - 1] = rows
    sums.single[s, count - 1] = rows


def tally(s, r, t, sums, first, stop, number, rows, clock):  # noqa: ARG001
    """Add the metric sums of a pass to the iteration's totals."""
    if goes_on(clock, s):
        for k in range(first, stop):
            sums.totals[s, k] += sums.sums[s, k]
        sums.seen[s, number] += rows


def find_means(s, r, t, sums, first, stop, rows):
    """Compute the batch means of the metrics added since the last reduction."""
    for k in range(first, stop):
        sums.means[s, sums.metric[k]] += np.float64(sums.sums[s, k]) / rows
    round_means(s, r, t, sums)


def round_means(s, r, t, sums):  # noqa: ARG001
    """Round the means to single precision, for row functions."""
    for m in range(sums.means.shape[1]):
        sums.single[s, m] = sums.means[s, m]


def adding(function: Callable[..., Any], head: Any, place: int, keep: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run(i, r, t, added, *columns)`: call a row function that adds to metrics.

    `place` is the position of the metrics among its arguments; `keep(added, i, metrics)` stores them.
    """

    def run(i, r, t, added, *columns):
        arguments = rows_at(columns, i, r, t)
        function(*arguments)
        keep(added, i, arguments[place])

    def run_with_head(i, r, t, added, *columns):
        arguments = rows_at(columns, i, r, t)
        function(head, *arguments)
        keep(added, i, arguments[place])

    made = run if head is None else run_with_head
    made.__name__ = function.__name__
    return made


def writing(
    function: Callable[..., Any],
    head: Any,
    metrics: int,
    gradient: int,
    keep: Callable[..., Any],
    share: Callable[..., Any],
) -> Callable[..., Any]:
    """Return `run(i, r, t, added, into, rows, clock, *columns)`: call a row function that writes a whole gradient.

    The gradient, at position `gradient` of its arguments, is scaled by `share(i, rows, clock)` and written to `into`.
    `metrics` and `keep` are as in `adding`.
    """

    def finish(i, added, into, rows, clock, arguments):
        scale, own, row = share(i, rows, clock), arguments[gradient], into[i]
        for k in range(len(own)):
            row[k] = own[k] * scale
        keep(added, i, arguments[metrics])

    def run(i, r, t, added, into, rows, clock, *columns):
        arguments = rows_at(columns, i, r, t)
        function(*arguments)
        finish(i, added, into, rows, clock, arguments)

    def run_with_head(i, r, t, added, into, rows, clock, *columns):
        arguments = rows_at(columns, i, r, t)
        function(head, *arguments)
        finish(i, added, into, rows, clock, arguments)

    made = run if head is None else run_with_head
    made.__name__ = function.__name__
    return made


def then_for(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `then(s, r, t, given, clock, *columns)`: call a function that derives means from means."""

    def then(s, r, t, given, clock, *columns):  # noqa: ARG001
        function(*rows_at(columns, s, r, t))

    return then


def once_for(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `once(s, r, t, given, clock, *columns)`: call a function of means that changes scalars."""

    def once(s, r, t, given, clock, *columns):  # noqa: ARG001
        if goes_on(clock, s):
            function(*rows_at(columns, s, r, t))

    return once


def gradient_for(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `gradient(s, r, t, given, clock, *columns)`: store a scalar's gradient, computed from means."""

    def gradient(s, r, t, given, clock, *columns):
        if goes_on(clock, s):
            given[s] = function(*rows_at(columns, s, r, t))

    return gradient


def stop_for(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `stop(s, r, t, given, clock, *columns)`: end an agent's update where a predicate of means holds."""

    def stop(s, r, t, given, clock, *columns):  # noqa: ARG001
        if function(*rows_at(columns, s, r, t)):
            clock.counts[s, STOPPED] = 1

    return stop
