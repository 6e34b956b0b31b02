"""Learning from a rollout as scalar functions of one index, to be mapped on any device; the products are torch's.

Several agents can learn side by side (seeds): what belongs to agent s has a row of its own. Counters and decisions
(stop, fault, step) are numbers on the device, so that an update is a fixed sequence of kernels that nobody waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.returns import gae, vtrace
from velocirl.buffers.rollout import GOES_ON
from velocirl.engine import random
from velocirl.engine.registers import row
from velocirl.networks.heads import Head
from velocirl.optim.clipping import clip_value, norm_scale
from velocirl.optim.optimisers import FACTORS, Rule
from velocirl.training.updating import METRICS

# The columns of `counts`.
STEPS, MINIBATCHES, SAMPLES, GATHERED, PLACE, STOPPED, FAULT, GOOD, COUNTS = range(9)
# The columns of `numbers`: norms are summed over the optimiser's steps of an update.
LEARNING_RATE, NORMS, TAKEN, LOSS_SCALE, NUMBERS = range(5)
DISCOUNT = np.dtype([(name, np.float32) for name in ("reward_scale", "reward_limit", "gamma", "gae_lambda")])
APPLIES = FACTORS - 1  # the factor that says whether there is a step to take; no optimiser uses it
LARGEST_SCALE, GROWTH_INTERVAL = 2.0**24, 2000  # of fp16's gradients: doubled after so many steps without overflow
ROUNDS = 8  # of a shuffle: with 4, some places of a small order are 8 % more likely than others


class Shape(NamedTuple):
    """The sizes of an update, for each agent."""

    copies: int
    horizon: int
    rows: int  # samples of a minibatch
    units: int  # that are drawn in an epoch: single samples, or copies
    unit: int  # samples of one: 1, or the horizon
    parameters: int


class Limits(NamedTuple):
    """The settings of a step."""

    max_grad_norm: float
    max_grad_value: float
    target_kl: float
    normalise: float  # 1 or 0
    scaling: float  # 1 where gradients are scaled against underflow (fp16), else 0


class Batch(NamedTuple):
    """A minibatch of every agent, its rows one agent after the other."""

    samples: Any  # (horizon + 1, seeds * copies) records of the rollout
    order: Any  # (seeds, units) in which they are drawn
    counts: Any  # (seeds, COUNTS) int64
    numbers: Any  # (seeds, NUMBERS) float64
    inputs: Any  # (seeds * rows, inputs)
    starts: Any  # (seeds * rows,) 1 where an episode begins, else 0
    advantages: Any  # (seeds * rows,)
    mean: Any  # (seeds,) of those
    deviation: Any  # (seeds,)
    outputs: Any  # (seeds * rows, outputs)
    output_gradient: Any  # (seeds * rows, outputs)
    metrics: Any  # (seeds * rows, METRICS)
    sums: Any  # (seeds, METRICS) of the minibatch
    totals: Any  # (seeds, METRICS) float64, of the update


class Learnt(NamedTuple):
    """The parameters of every agent and what the optimiser keeps, flat."""

    parameters: Any  # (seeds * parameters,)
    gradient: Any  # (seeds * parameters,)
    moments: Any  # (slots, seeds * parameters)
    settings: Any  # of the optimiser, float64
    factors: Any  # (seeds, FACTORS)
    norm: Any  # (seeds,) float64, of the gradient


class Updating(NamedTuple):
    """The functions of an update, each for one index."""

    draw_keys: Callable[..., Any]  # (s, keys, rng, batch)
    draw: Callable[..., Any]  # (q, keys, batch, shape): the order of an epoch
    keep_order: Callable[..., Any]  # (q, batch, shape): as they lie
    gather: Callable[..., Any]  # (n, batch, shape): number n of the minibatch's inputs
    gather_state: Callable[..., Any]  # (n, batch, shape, start_state, state), of recurrent networks
    lose: Callable[..., Any]  # (r, batch, shape, settings, limits)
    tally: Callable[..., Any]  # (s, batch, shape, limits)
    scale: Callable[..., Any]  # (p, batch, learnt, shape, limits)
    judge: Callable[..., Any]  # (s, batch, learnt, limits)
    descend: Callable[..., Any]  # (p, batch, learnt, shape, limits)
    begin: Callable[..., Any]  # (s, batch)
    estimate: Callable[..., Any]  # (i, track, discounts, spread, shape): GAE of a copy's column
    revalue: Callable[..., Any]  # (r, batch, shape): what V-trace needs of the network of now
    retrace: Callable[..., Any]  # (i, track, discounts, shape, rho_limit, c_limit)


def updating(
    loss_gradient: Callable[..., Any],
    rule: Rule,
    head: Head,
    divergence: int,
    recurrent: bool,
    *,
    alone: bool = False,
) -> Updating:
    """Compose an update for a loss and an optimiser; `alone` where there is one agent only."""
    prepare, apply = rule
    evaluate, value_column = head.evaluate, head.outputs

    def place(r, batch, shape):
        """The agent, the step and the copy (of all) of row r of a minibatch."""
        s = 0 if alone else r // shape.rows  # a division costs a GPU more than all else here
        q = r - s * shape.rows
        if shape.unit == 1:
            u = batch.order[s, batch.counts[s, PLACE] * shape.rows + q]
            t = u // shape.copies
            return s, t, s * shape.copies + u - t * shape.copies
        together = shape.rows // shape.unit  # copies; their steps lie one after the other, as a recurrent network wants
        t = q // together
        return s, t, s * shape.copies + batch.order[s, batch.counts[s, PLACE] * together + q - t * together]

    def draw_keys(s, keys, rng, batch):
        stream = row(rng, s)
        for k in range(4):
            row(keys, s)[k] = random.bits(stream)
        batch.counts[s, PLACE] = 0

    def draw(q, keys, batch, shape):
        s, u = q // shape.units, q % shape.units
        batch.order[s, u] = shuffled(u, shape.units, row(keys, s))

    def keep_order(q, batch, shape):
        s, u = q // shape.units, q % shape.units
        batch.order[s, u] = u
        if u == 0:
            batch.counts[s, PLACE] = 0

    def gather(n, batch, shape):
        width = batch.inputs.shape[1]
        r = n // width
        j = n - r * width
        _, t, i = place(r, batch, shape)
        sample = batch.samples[t, i]
        batch.inputs[r, j] = sample.observation[j]
        if j == 0:
            batch.advantages[r] = sample.advantage
            if recurrent:
                batch.starts[r] = 1.0 if t > 0 and batch.samples[t - 1, i].ended != GOES_ON else 0.0

    def gather_state(n, batch, shape, start_state, state):
        width = state.shape[1]
        c, k = n // width, n % width
        _, _, i = place(c, batch, shape)  # the first step of each copy comes first
        state[c, k] = start_state[i, k]

    def lose(r, batch, shape, settings, limits):
        s, t, i = place(r, batch, shape)
        sample = batch.samples[t, i]
        advantage = sample.advantage
        if limits.normalise > 0.0:
            advantage = (advantage - batch.mean[s]) / (batch.deviation[s] + 1e-8)
        gradient = batch.output_gradient[r]
        loss_gradient(batch.outputs[r], sample, advantage, settings, gradient, batch.metrics[r])
        share = np.float32(batch.numbers[s, LOSS_SCALE] / shape.rows)
        for k in range(len(gradient)):
            gradient[k] *= share

    def begin(s, batch):
        for m in range(METRICS):
            batch.totals[s, m] = 0.0
        for name in (MINIBATCHES, SAMPLES, GATHERED, PLACE, STOPPED, FAULT):
            batch.counts[s, name] = 0
        batch.numbers[s, NORMS] = 0.0
        batch.numbers[s, TAKEN] = 0.0

    def tally(s, batch, shape, limits):
        """Count a minibatch, and see whether the policy has moved too far to go on."""
        batch.counts[s, PLACE] += 1
        if batch.counts[s, STOPPED] != 0 or batch.counts[s, FAULT] != 0:
            return
        for m in range(METRICS):
            batch.totals[s, m] += batch.sums[s, m]
        batch.counts[s, MINIBATCHES] += 1
        batch.counts[s, SAMPLES] += shape.rows
        batch.counts[s, GATHERED] += 1
        if limits.target_kl > 0.0 and batch.sums[s, divergence] / shape.rows > 1.5 * limits.target_kl:
            batch.counts[s, STOPPED] = 1

    def scale(p, batch, learnt, shape, limits):
        """The sum of scaled gradients becomes their mean, each number clipped."""
        s = p // shape.parameters
        share = 1.0 / (max(batch.counts[s, GATHERED], 1) * batch.numbers[s, LOSS_SCALE])
        learnt.gradient[p] = clip_value(learnt.gradient[p] * np.float32(share), np.float32(limits.max_grad_value))

    def judge(s, batch, learnt, limits):
        """Decide whether there is a step to take, and prepare it."""
        batch.counts[s, GATHERED] = 0
        row(learnt.factors, s)[APPLIES] = 0.0
        if batch.counts[s, STOPPED] != 0 or batch.counts[s, FAULT] != 0:
            return
        norm = learnt.norm[s]
        if norm * 0.0 != 0.0:
            if limits.scaling > 0.0 and batch.numbers[s, LOSS_SCALE] > 1.0:
                batch.numbers[s, LOSS_SCALE] *= 0.5  # an overflow of fp16: this step is left out
                batch.counts[s, GOOD] = 0
            else:
                batch.counts[s, FAULT] = 1
            return
        batch.counts[s, STEPS] += 1
        batch.numbers[s, TAKEN] += 1.0
        batch.numbers[s, NORMS] += norm
        prepare(learnt.settings, batch.numbers[s, LEARNING_RATE], batch.counts[s, STEPS], row(learnt.factors, s))
        row(learnt.factors, s)[APPLIES] = 1.0
        if limits.scaling > 0.0:
            batch.counts[s, GOOD] += 1
            if batch.counts[s, GOOD] >= GROWTH_INTERVAL and batch.numbers[s, LOSS_SCALE] < LARGEST_SCALE:
                batch.numbers[s, LOSS_SCALE] *= 2.0
                batch.counts[s, GOOD] = 0

    def descend(p, batch, learnt, shape, limits):  # noqa: ARG001
        s = p // shape.parameters
        factors = row(learnt.factors, s)
        if factors[APPLIES] > 0.0:
            norm = learnt.norm[s]
            held = np.float32(norm_scale(norm * norm, limits.max_grad_norm))
            apply(learnt.parameters, learnt.gradient[p] * held, learnt.moments, p, factors)

    def estimate(i, track, discounts, spread, shape):
        column = track.samples[: shape.horizon, i]
        gae(column, track.last_value[i], discounts[i // shape.copies])
        sums = row(spread, i)
        for m in range(len(sums)):
            sums[m] = 0.0
        for t in range(shape.horizon):
            target, error = np.float64(column[t].target), np.float64(column[t].advantage)
            sums[0] += target
            sums[1] += target * target
            sums[2] += error
            sums[3] += error * error

    def revalue(r, batch, shape):
        _, t, i = place(r, batch, shape)
        sample, output = batch.samples[t, i], batch.outputs[r]
        log_probability, _ = evaluate(output, sample.mask, sample.action, batch.output_gradient[r])
        sample.ratio = exp(log_probability - sample.log_probability)
        sample.current_value = output[value_column]

    def retrace(i, track, discounts, shape, rho_limit, c_limit):
        column = track.samples[: shape.horizon, i]
        vtrace(column, track.last_value[i], discounts[i // shape.copies], rho_limit, c_limit)

    return Updating(
        draw_keys, draw, keep_order, gather, gather_state, lose, tally, scale, judge, descend, begin, estimate, revalue,
        retrace,
    )  # fmt: skip


def shuffled(u, count, keys):
    """Where u lies in a random order of `count`: a permutation that is computed, not stored.

    Each round is reversible on the numbers of as many bits as `count` needs (add, multiply by an odd number, fold the
    upper half onto the lower); what falls outside is sent through again until it falls inside.
    """
    bits = 1
    while (1 << bits) < count:
        bits += 1
    mask = (1 << bits) - 1
    half = (bits + 1) // 2
    x = np.int64(u)
    inside = False
    while not inside:
        for k in range(ROUNDS):
            key = np.int64(keys[k & 3] >> np.uint64(1 + 15 * (k >> 2)))  # every word serves twice, by other bits
            x = (x + (key & mask)) & mask
            x = (x * (((key >> 31) << 1 | 1) & mask)) & mask
            x ^= x >> half
        inside = x < count
    return x
