"""Learning from a memory as scalar functions of one index, to be mapped on any device; the products are torch's.

What changes from step to step (places, counters, exploration, the pace of an iteration) are numbers on the device, so
that a step of the fleet and an update are fixed sequences of kernels that nobody waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.n_step import follow
from velocirl.buffers.prioritised import fraction, power
from velocirl.buffers.replay import FILLED, PLACE, TOTAL
from velocirl.buffers.sum_tree import CHILDREN, find, leaf_of, sum_up, total_of
from velocirl.engine import random
from velocirl.engine.registers import row
from velocirl.optim.clipping import clip_value, norm_scale
from velocirl.optim.optimisers import FACTORS, Rule
from velocirl.learners.pace import ANY_PACE, beta_at, exploration_at

# The columns of a clock's counts: the step of the iteration, that of the run, updates of the run, and of the iteration
# those of the value or critic, and of the actor.
STEP, RUN_STEP, UPDATES, TAKEN, ACTOR_TAKEN, FAULT, CLOCK = range(7)
EXPLORATION, NORMS, NUMBERS = range(3)  # the columns of its numbers; norms are summed over the updates of an iteration
APPLIES = FACTORS - 1  # the factor that says whether there is a step to take; no optimiser uses it
# The pace of an iteration as a record, so that a graph reads what the host wrote last.
PACE = np.dtype(
    [(name, np.int64 if isinstance(one, int) else np.float64) for name, one in ANY_PACE._asdict().items()], align=True
)


class Clock(NamedTuple):
    """How far the run is."""

    counts: Any  # (CLOCK,) int64
    numbers: Any  # (NUMBERS,) float64
    pace: Any  # (1,) PACE


class Ring(NamedTuple):
    """The memory: records of single steps, and what is drawn more often."""

    rows: Any  # (capacity,) records
    counts: Any  # (3,) PLACE, FILLED, TOTAL
    tree: Any  # (rows, CHILDREN) priorities^alpha and their sums; see `sum_tree`
    starts: Any  # (levels,) where each level begins
    greatest: Any  # (1,) float32, of all priorities^alpha so far


class Extent(NamedTuple):
    """The sizes of drawing."""

    copies: int
    batch: int
    n_step: int
    gamma: float
    alpha: float
    epsilon: float


class Batch(NamedTuple):
    """What was drawn."""

    places: Any  # (batch,) int64
    lasts: Any  # (batch,) int64, the places whose next observation comes after the n steps
    rewards: Any  # (batch,) of the n steps
    discounts: Any  # (batch,)
    leaves: Any  # (batch,) priorities^alpha, and afterwards the new ones
    least: Any  # (1,) of those
    errors: Any  # (batch,)
    inputs: Any  # (batch, inputs)
    following: Any  # (batch, inputs) the observations after the n steps


class Learnt(NamedTuple):
    """The parameters of a network and what its optimiser keeps."""

    parameters: Any  # (parameters,)
    gradient: Any  # (parameters,)
    moments: Any  # (slots, parameters)
    settings: Any  # of the optimiser, float64
    factors: Any  # (FACTORS,)
    norm: Any  # (1,) float64, of the gradient


def begin(_, clock):
    """At the beginning of an iteration."""
    clock.counts[STEP] = 0
    clock.counts[TAKEN] = 0
    clock.counts[ACTOR_TAKEN] = 0
    clock.counts[FAULT] = 0
    clock.numbers[NORMS] = 0.0
    clock.numbers[EXPLORATION] = exploration_at(clock.counts[RUN_STEP], clock.pace[0])


def advance(_, ring, clock, extent):
    """After a step of all copies."""
    capacity = len(ring.rows)
    place = ring.counts[PLACE] + extent.copies
    ring.counts[PLACE] = place if place < capacity else 0
    ring.counts[FILLED] = min(ring.counts[FILLED] + extent.copies, capacity)
    ring.counts[TOTAL] += extent.copies
    clock.counts[STEP] += 1
    clock.counts[RUN_STEP] += extent.copies
    clock.numbers[EXPLORATION] = exploration_at(clock.counts[RUN_STEP], clock.pace[0])


def admit(i, ring):
    """The newest record of copy i gets the greatest priority so far; before `advance`."""
    leaf = ring.counts[PLACE] + i
    ring.tree[leaf // CHILDREN, leaf % CHILDREN] = ring.greatest[0]


def sum_newest(k, ring, extent, level):
    """Sum the k-th node above the newest group anew."""
    below = np.int64(1)
    for _ in range(level):
        below *= CHILDREN
    node = ring.counts[PLACE] // below + k
    if node <= (ring.counts[PLACE] + extent.copies - 1) // below:
        sum_up(ring.tree, ring.starts, level, node)


def sum_drawn(r, ring, batch, level):
    """Sum the node above a place that was drawn anew; those that share one write the same number."""
    node = batch.places[r]
    for _ in range(level):
        node = node // CHILDREN
    sum_up(ring.tree, ring.starts, level, node)


def sum_all(node, ring, level):
    """Sum a node of a level anew."""
    sum_up(ring.tree, ring.starts, level, node)


def draw(r, ring, batch, rng, extent):
    """Draw a record, each as probable as any other."""
    note(r, random.integer(row(rng, r), 0, ring.counts[FILLED]), ring, batch, extent)


def draw_by_share(r, ring, batch, rng, extent):
    """Draw a record from the r-th of as many equal shares of the total of priorities; their places never fall."""
    share = total_of(ring.tree) / np.float64(extent.batch)
    place = find(ring.tree, ring.starts, (np.float64(r) + fraction(row(rng, r))) * share)
    batch.leaves[r] = leaf_of(ring.tree, place)
    note(r, place, ring, batch, extent)


def note(r, place, ring, batch, extent):
    """Where a record lies, and what came of it over n steps."""
    reward, discount, last = follow(ring.rows, ring.counts, extent.copies, place, extent.n_step, extent.gamma)
    batch.places[r] = place
    batch.lasts[r] = last
    batch.rewards[r] = reward
    batch.discounts[r] = discount


def gather(n, ring, batch):
    """Number n of what the networks read."""
    width = batch.inputs.shape[1]
    r = n // width
    j = n - r * width
    batch.inputs[r, j] = ring.rows[batch.places[r]].observation[j]
    batch.following[r, j] = ring.rows[batch.lasts[r]].next_observation[j]


def weight_alike(r, batch, clock):  # noqa: ARG001 - as that of priorities
    """The weight in the loss of what was drawn uniformly."""
    return np.float32(1)


def weight_by_share(r, batch, clock):
    """The weight in the loss that takes priorities back, of which the largest of a batch is 1."""
    beta = beta_at(clock.counts[RUN_STEP], clock.pace[0])
    return np.float32(power(batch.least[0] / batch.leaves[r], beta))


def rate(r, batch, clock, extent):
    """The error of a record becomes its new priority."""
    sound = clock.counts[FAULT] == 0
    batch.leaves[r] = power(abs(batch.errors[r]) + np.float32(extent.epsilon), extent.alpha) if sound else 0.0


def revise(r, ring, batch, clock):
    """Write a new priority; a record that was drawn several times lies in neighbouring rows, and the last counts."""
    ours = r + 1 == len(batch.places) or batch.places[r + 1] != batch.places[r]
    if ours and clock.counts[FAULT] == 0:
        leaf = batch.places[r]
        ring.tree[leaf // CHILDREN, leaf % CHILDREN] = batch.leaves[r]


def limit(p, learnt, clock):
    """Clip each number of the gradient."""
    learnt.gradient[p] = clip_value(learnt.gradient[p], np.float32(clock.pace[0].max_grad_value))


def move(p, parameters, frozen, clock):
    """Let a frozen network come closer to the one that learns."""
    if clock.counts[FAULT] == 0:
        tau = np.float32(clock.pace[0].tau)
        frozen[p] = tau * parameters[p] + (np.float32(1) - tau) * frozen[p]


class Descending(NamedTuple):
    """The functions of a step of an optimiser."""

    judge: Callable[..., Any]  # (_, learnt, clock): counts an update, unless its gradient is not finite
    judge_actor: Callable[..., Any]  # (_, learnt, clock): the same for the actor, whose critic was counted
    descend: Callable[..., Any]  # (p, learnt, clock)
    heat: Callable[..., Any]  # (_, temperature, slope, actor, clock): the step of a temperature, like the actor's


def descending(rule: Rule) -> Descending:
    """Compose the steps of an optimiser."""
    prepare, apply = rule

    def judge(_, learnt, clock):
        learnt.factors[APPLIES] = 0.0
        if clock.counts[FAULT] != 0:
            return
        norm = learnt.norm[0]
        if norm * 0.0 != 0.0:
            clock.counts[FAULT] = 1
            return
        clock.counts[UPDATES] += 1
        clock.counts[TAKEN] += 1
        clock.numbers[NORMS] += norm
        prepare(learnt.settings, clock.pace[0].learning_rate, clock.counts[UPDATES], learnt.factors)
        learnt.factors[APPLIES] = 1.0

    def judge_actor(_, learnt, clock):
        learnt.factors[APPLIES] = 0.0
        if clock.counts[FAULT] != 0:
            return
        if learnt.norm[0] * 0.0 != 0.0:
            clock.counts[FAULT] = 1
            return
        clock.counts[ACTOR_TAKEN] += 1
        step = clock.counts[UPDATES] // clock.pace[0].actor_every
        prepare(learnt.settings, clock.pace[0].learning_rate, step, learnt.factors)
        learnt.factors[APPLIES] = 1.0

    def descend(p, learnt, clock):
        if learnt.factors[APPLIES] > 0.0:
            norm = learnt.norm[0]
            held = np.float32(norm_scale(norm * norm, clock.pace[0].max_grad_norm))
            apply(learnt.parameters, learnt.gradient[p] * held, learnt.moments, p, learnt.factors)

    def heat(_, temperature, slope, learnt, clock):  # noqa: ARG001
        if learnt.factors[APPLIES] > 0.0:
            apply(temperature[0], slope[0], temperature[1:], 0, learnt.factors)

    return Descending(judge, judge_actor, descend, heat)
