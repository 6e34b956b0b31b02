"""Learning from a rollout: every epoch and minibatch in one compiled loop, run by all threads together.

Each thread draws its part of a minibatch from the copies that it stepped itself, takes it block by block through
gather, forward, loss and backward, and then the threads meet: gradients are added up, each thread updates its part of
the parameters, and all go on with the next minibatch. Sums are always formed in the order of the threads, so that a
result depends on their number but never on their timing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.threads import meet
from velocirl.networks.mlp import ROWS
from velocirl.networks.passes import Passes
from velocirl.optim.clipping import clip_value, norm_scale
from velocirl.optim.optimisers import Rule
from velocirl.learners.counters import ALWAYS, FIRST_KIND, PLACES, SECOND_KIND, WHOLE, Count, glance, lap, start, turn

METRICS = 8  # the most that a loss can report for a sample
# The columns of `partial`, which a thread writes for the others to read: padded, so that no two share a cache line.
ADVANTAGE, SQUARED_ADVANTAGE, DIVERGENCE, SQUARED_NORM, PARTIAL = 0, 1, 2, 3, 16
# The columns of `outcome`: what a whole update came to.
STEPS, MINIBATCHES, SAMPLES, GRADIENT_NORM, STOPPED, FAULT, OUTCOME = 0, 1, 2, 3, 4, 5, 8
# What an update counts: one block of rows in so many, and one minibatch, since small ones take some microseconds.
BLOCK, MINIBATCH, EVERY = FIRST_KIND, SECOND_KIND, 13
GATHER, FORWARD, LOSS, BACKWARD, SPREADING, SHUFFLING, ESTIMATING = range(PLACES, PLACES + 7)
OPTIMISER, WAITING, LAST_WAIT = range(PLACES + 7, PLACES + 10)
UPDATE_COUNTS = (
    Count("gather", GATHER, BLOCK),
    Count("gather", SPREADING, MINIBATCH),  # of the advantages
    Count("gather", SHUFFLING, ALWAYS),
    Count("forward", FORWARD, BLOCK),
    Count("forward", ESTIMATING, ALWAYS),  # anew in each epoch, where an estimator follows the policy
    Count("loss", LOSS, BLOCK),
    Count("backward", BACKWARD, BLOCK),
    Count("optimiser", OPTIMISER, MINIBATCH),
    Count("waiting", WAITING, MINIBATCH),
    Count("waiting", LAST_WAIT, ALWAYS),
)


class Common(NamedTuple):
    """What all threads share in an update."""

    parameters: NDArray[np.float32]  # (parameters,)
    gradients: NDArray[np.float32]  # (threads, parameters)
    moments: NDArray[np.float32]  # (slots, parameters) of the optimiser
    settings: NDArray[np.float64]  # of the optimiser
    partial: NDArray[np.float64]  # (threads, PARTIAL)
    meeting: NDArray[np.int64]  # where the threads wait for each other
    sizes: NDArray[np.int64]  # (threads,) how many units each thread draws from
    outcome: NDArray[np.float64]  # (OUTCOME,)


class Own(NamedTuple):
    """What is one thread's own in an update."""

    samples: NDArray[Any]  # (copies * horizon,) records, a copy's life together
    last_value: NDArray[np.float32]  # (copies,)
    units: NDArray[np.int32]  # what is drawn together: single samples, or copies
    order: NDArray[np.int32]  # (copies * horizon,) the samples as they are drawn
    rng: NDArray[np.uint64]  # (2,)
    factors: NDArray[np.float32]  # of the optimiser
    metrics: NDArray[np.float32]  # (METRICS,) of one sample
    totals: NDArray[np.float64]  # (METRICS,) summed over the update
    counters: NDArray[np.int64]  # (ROW,) see `counters`


class Schedule(NamedTuple):
    """The numbers of one update."""

    learning_rate: float
    epochs: int
    minibatches: int
    accumulate: int  # minibatches whose mean gradient makes one step
    unit: int  # samples that are drawn together: 1, or a copy's whole rollout
    max_grad_norm: float
    max_grad_value: float
    target_kl: float
    normalise: bool


def update_loop(
    functions: Passes, loss_gradient: Callable[..., Any], rule: Rule, divergence: int, reestimate: Callable[..., Any]
) -> Callable[..., Any]:
    """`update(thread, threads, plan, work, common, own, loss_settings, schedule, discount)`: all epochs over a rollout.

    `divergence` is the metric that stops an update when its mean exceeds target_kl; `reestimate(plan, work, own,
    loss_settings, discount)` runs before each epoch, for estimators that follow the changing policy.
    """
    pack, forward, backward, clear, unpack = functions[1:]
    prepare, apply = rule

    def shuffle(own, unit):
        """Put the units into a random order (Fisher and Yates), and their samples with them."""
        for last in range(len(own.units) - 1, 0, -1):
            other = random.integer(own.rng, 0, last + 1)
            own.units[last], own.units[other] = own.units[other], own.units[last]
        place = 0
        for u in range(len(own.units)):
            for t in range(unit):
                own.order[place] = own.units[u] * unit + t
                place += 1

    def add_advantages(samples, order, first, stop, partial):
        total = 0.0
        squares = 0.0
        for q in range(first, stop):
            advantage = np.float64(samples[order[q]].advantage)
            total += advantage
            squares += advantage * advantage
        partial[ADVANTAGE] = total
        partial[SQUARED_ADVANTAGE] = squares

    def add_gradients(plan, work, own, loss_settings, first, stop, centre, inverse_scale):
        """Gather, forward, loss and backward over one thread's part of a minibatch, block by block."""
        row, counters = plan.layers[0].source_row, own.counters
        for begin in range(first, stop, ROWS):
            rows = min(ROWS, stop - begin)
            timed = turn(counters, BLOCK, EVERY)
            since = start(counters, BLOCK, timed)
            for r in range(rows):
                observation = own.samples[own.order[begin + r]].observation
                into = work.values[r * row : r * row + len(observation)]
                for j in range(len(observation)):
                    into[j] = observation[j]
            since = lap(counters, GATHER, since, timed)
            forward(plan, work, rows)
            since = lap(counters, FORWARD, since, timed)
            for r in range(rows):
                sample = own.samples[own.order[begin + r]]
                advantage = (sample.advantage - centre) * inverse_scale
                loss_gradient(work.output[r], sample, advantage, loss_settings, work.output_gradient[r], own.metrics)
                for m in range(METRICS):
                    own.totals[m] += own.metrics[m]
            since = lap(counters, LOSS, since, timed)
            backward(plan, work, rows, False)
            lap(counters, BACKWARD, since, timed)

    def reduce(common, threads, first, stop, scale, limit):
        """Add up the threads' gradients between two places, into the first row; gives the sum of squares."""
        squares = 0.0
        for p in range(first, stop):
            total = common.gradients[0, p]
            for other in range(1, threads):
                total += common.gradients[other, p]
            total = clip_value(total * scale, limit)
            common.gradients[0, p] = total
            squares += np.float64(total) * np.float64(total)
        return squares

    def descend(common, first, stop, factors, scale):
        """One optimiser step of the parameters between two places."""
        for p in range(np.uint64(first), np.uint64(stop)):
            apply(common.parameters, common.gradients[0, p] * scale, common.moments, p, factors)

    def total_of(common, threads, column):
        total = 0.0
        for other in range(threads):
            total += common.partial[other, column]
        return total

    def update(thread, threads, plan, work, common, own, loss_settings, schedule, discount):
        unit, minibatches, counters, begun = schedule.unit, schedule.minibatches, own.counters, glance(True)
        size = common.parameters.shape[0]
        share = (size // threads + 15) // 16 * 16
        low, high = min(thread * share, size), min((thread + 1) * share, size)
        if thread == threads - 1:
            high = size
        meetings = 0
        step = np.int64(common.outcome[STEPS])
        stopped, faulty = False, False
        norms, seen, done = 0.0, 0, 0
        for u in range(len(own.units)):
            own.units[u] = u
        own.totals[:] = 0.0
        pack(plan, common.parameters, work)
        for _ in range(schedule.epochs):
            since = glance(True)
            reestimate(plan, work, own, loss_settings, discount)
            since = lap(counters, ESTIMATING, since, True)
            shuffle(own, unit)
            lap(counters, SHUFFLING, since, True)
            gathered, weight = 0, 0
            for m in range(minibatches):
                first = len(own.units) * m // minibatches * unit
                stop = len(own.units) * (m + 1) // minibatches * unit
                batch = 0
                for other in range(threads):
                    units = common.sizes[other]
                    batch += (units * (m + 1) // minibatches - units * m // minibatches) * unit
                if batch == 0:  # each thread cuts its own share, and so many pieces can leave one of them empty
                    continue
                timed = turn(counters, MINIBATCH, EVERY)
                since = start(counters, MINIBATCH, timed)
                centre, inverse_scale = np.float32(0), np.float32(1)
                if schedule.normalise and batch > 1:
                    add_advantages(own.samples, own.order, first, stop, common.partial[thread])
                    since = lap(counters, SPREADING, since, timed)
                    meetings += 1
                    meet(common.meeting, thread, threads, meetings)
                    since = lap(counters, WAITING, since, timed)
                    mean = total_of(common, threads, ADVANTAGE) / batch
                    variance = total_of(common, threads, SQUARED_ADVANTAGE) / batch - mean * mean
                    variance = max(variance, 0.0) * batch / (batch - 1)
                    centre, inverse_scale = np.float32(mean), np.float32(1.0 / (sqrt(variance) + 1e-8))
                if gathered == 0:
                    clear(plan, work)
                lap(counters, OPTIMISER, since, timed)
                before = own.totals[divergence]
                add_gradients(plan, work, own, loss_settings, first, stop, centre, inverse_scale)
                since = glance(timed)
                common.partial[thread, DIVERGENCE] = own.totals[divergence] - before
                gathered += 1
                weight += batch
                seen += batch
                done += 1
                last = gathered == schedule.accumulate or m == minibatches - 1
                if last:
                    unpack(plan, work, common.gradients[thread])
                since = lap(counters, OPTIMISER, since, timed)
                meetings += 1
                meet(common.meeting, thread, threads, meetings)
                since = lap(counters, WAITING, since, timed)
                divergent = total_of(common, threads, DIVERGENCE) / batch
                if schedule.target_kl > 0.0 and divergent > 1.5 * schedule.target_kl:
                    stopped = True
                    break
                if not last:
                    meetings += 1
                    meet(common.meeting, thread, threads, meetings)  # before anyone writes a new partial sum
                    lap(counters, WAITING, since, timed)
                    continue
                scale = np.float32(1.0 / weight)
                squares = reduce(common, threads, low, high, scale, np.float32(schedule.max_grad_value))
                common.partial[thread, SQUARED_NORM] = squares
                since = lap(counters, OPTIMISER, since, timed)
                meetings += 1
                meet(common.meeting, thread, threads, meetings)
                since = lap(counters, WAITING, since, timed)
                squared_norm = total_of(common, threads, SQUARED_NORM)
                if squared_norm * 0.0 != 0.0:
                    faulty = True
                    break
                step += 1
                norms += sqrt(squared_norm)
                prepare(common.settings, schedule.learning_rate, step, own.factors)
                descend(common, low, high, own.factors, np.float32(norm_scale(squared_norm, schedule.max_grad_norm)))
                gathered, weight = 0, 0
                since = lap(counters, OPTIMISER, since, timed)
                meetings += 1
                meet(common.meeting, thread, threads, meetings)
                since = lap(counters, WAITING, since, timed)
                pack(plan, common.parameters, work)
                lap(counters, OPTIMISER, since, timed)
            if stopped or faulty:
                break
        if thread == 0:
            taken = step - np.int64(common.outcome[STEPS])
            common.outcome[MINIBATCHES] = done
            common.outcome[SAMPLES] = seen
            common.outcome[GRADIENT_NORM] = norms / max(taken, 1)
            common.outcome[STOPPED] = 1.0 if stopped else 0.0
            common.outcome[FAULT] = 1.0 if faulty else 0.0
        since = glance(True)
        meetings += 1
        meet(common.meeting, thread, threads, meetings)
        lap(counters, LAST_WAIT, since, True)
        if thread == 0:
            common.outcome[STEPS] = step
        lap(counters, WHOLE, begun, True)

    return update
