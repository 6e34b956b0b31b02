"""Collecting a rollout: decide, step, settle. Scalar functions for one copy, composed into stages over a block of them.

In a fleet, each thread takes a block of copies through the whole rollout before the next, in one compiled loop: copies
do not know each other, and the block stays in its cache. Normalisers stand still during a rollout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.rollout import GOES_ON, TERMINATED, TRUNCATED
from velocirl.engine.lifecycle import Lifecycle
from velocirl.engine.registers import row
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.mlp import ROWS
from velocirl.networks.passes import Passes
from velocirl.learners.counters import ALWAYS, FIRST_KIND, PLACES, WHOLE, Count, allocate, glance, lap, start, turn

EPISODE = np.dtype([("step", np.int32), ("copy", np.int32), ("total", np.float32), ("length", np.int32)])
ENDED, FAULT, FAULTY_COPY, FAULTY_STEP, COUNTS = 0, 1, 2, 3, 8  # the places of a journal's counts
NO_FAULT, FAULT_IN_OBSERVATION, FAULT_IN_REWARD, FAULT_IN_POLICY, FAULT_IN_STATE = range(5)
# What a rollout counts. A step of a block of copies takes as little as a microsecond: one in so many is timed.
EVERY = 13
POLICY, ENVIRONMENT, BUFFER, LAST_VALUES = range(PLACES, PLACES + 4)
ROLLOUT_COUNTS = (
    Count("policy", POLICY, FIRST_KIND),
    Count("policy", LAST_VALUES, ALWAYS),
    Count("environment", ENVIRONMENT, FIRST_KIND),
    Count("buffer", BUFFER, FIRST_KIND),
)


class Journal(NamedTuple):
    """What one thread records of a rollout."""

    samples: NDArray[Any]  # (copies, horizon) records
    last_value: NDArray[np.float32]  # (copies,) of what is seen after the last step
    episodes: NDArray[Any]  # (copies * horizon,) EPISODE: those that ended, block by block
    counts: NDArray[np.int64]  # (COUNTS,) episodes that ended; kind, copy and step of the first fault
    observation_sums: NDArray[np.float64]  # (2, inputs) of what was seen, and of its squares
    discounted: NDArray[np.float32]  # (copies,) the discounted return so far, for the scale of rewards
    discounted_sums: NDArray[np.float64]  # (2,) of those returns, and of their squares
    waiting: NDArray[np.int64]  # (ROWS,) copies whose final observation has to be valued
    encoded: NDArray[np.float32]  # (inputs,) an observation that is not kept
    counters: NDArray[np.int64]  # (ROW,) see `counters`


class Eyes(NamedTuple):
    """How observations are normalised during a rollout."""

    centre: NDArray[np.float32]  # (inputs,)
    inverse_scale: NDArray[np.float32]  # (inputs,)


class Scalars(NamedTuple):
    """What is done for one copy in a step, on every device alike."""

    look: Callable[..., Any]  # (observation, eyes, encoded, into) -> 0, or NaN if something seen is not finite
    add_moments: Callable[..., Any]  # (observation, sums): of its numbers and their squares
    act: Callable[..., Any]  # (copies, i, output, rng, sample) -> 0, or NaN if the output is not finite
    note: Callable[..., Any]  # (copies, i, sample, discounted, gamma) -> the discounted return so far


class Stages(NamedTuple):
    """A step of a block of copies, from `start`, on either side of what the environment does."""

    decide: Callable[..., Any]  # (copies, plan, work, rng, eyes, journal, start, rows, t): actions from observations
    settle: Callable[..., Any]  # (copies, plan, work, eyes, journal, start, rows, t, gamma): record what came of it
    finish: Callable[..., Any]  # (copies, plan, work, eyes, journal, start, rows): the value of what is seen at the end


def scalars(head: Head, encoding: Encoding, write: Callable[..., Any]) -> Scalars:
    """Compose what is done for one copy, for a policy."""
    sample_action, masked, value_column = head.sample, head.masked, head.outputs
    inputs, encode, at = encoding.inputs, encoding.encode, encoding.at

    def look(observation, eyes, encoded, into):
        """Encode an observation, and copy that to where the network reads it."""
        check = encode(observation, eyes.centre, eyes.inverse_scale, encoded)
        for j in range(inputs):
            into[j] = encoded[j]
        return check

    def add_moments(observation, sums):
        """Add an observation's numbers and their squares to the sums from which it will be normalised."""
        for j in range(inputs):
            number = np.float64(at(observation, j))
            sums[0, j] += number
            sums[1, j] += number * number

    def act(copies, i, output, rng, sample):
        """Draw an action for copy i from its row of the network's output."""
        if masked:
            mask = row(copies.mask, i)
            for k in range(len(mask)):
                sample.mask[k] = mask[k]
        sample.log_probability = sample_action(output, sample.mask, row(rng, i), sample.action)
        sample.value = output[value_column]
        write(copies.action, i, sample.action)
        return (sample.log_probability + sample.value) * 0

    def note(copies, i, sample, discounted, gamma):
        """Record what came of copy i's step."""
        sample.reward = copies.reward[i]
        sample.final_value = 0.0
        ended = GOES_ON
        if copies.terminated[i]:
            ended = TERMINATED
        elif copies.truncated[i]:
            ended = TRUNCATED
        sample.ended = ended
        return discounted * gamma + sample.reward

    return Scalars(look, add_moments, act, note)


def stages(head: Head, encoding: Encoding, write: Callable[..., Any], functions: Passes) -> Stages:
    """Compose the stages for a policy."""
    look, add_moments, act, note = scalars(head, encoding, write)
    inputs, normalises, value_column = encoding.inputs, encoding.normalises, head.outputs
    forward = functions.forward

    def count(copies, i, sample, journal, t, gamma):
        """Record what came of copy i's step, and the episode if one ended."""
        discounted = note(copies, i, sample, journal.discounted[i], gamma)
        journal.discounted_sums[0] += discounted
        journal.discounted_sums[1] += np.float64(discounted) * np.float64(discounted)
        if sample.ended != GOES_ON:
            discounted = 0.0
            episode = journal.episodes[journal.counts[ENDED]]
            episode.step = t
            episode.copy = i
            episode.total = copies.episode_return[i]
            episode.length = copies.episode_length[i]
            journal.counts[ENDED] += 1
        journal.discounted[i] = discounted

    def decide(copies, plan, work, rng, eyes, journal, start, rows, t):
        input_row = plan.layers[0].source_row
        for r in range(rows):
            i = start + r
            seen = row(copies.observation, i)
            into = work.values[r * input_row : r * input_row + inputs]
            check = look(seen, eyes, journal.samples[i, t].observation, into)
            if check != 0:
                tell(journal, FAULT_IN_OBSERVATION, i, t)
            if normalises:
                add_moments(seen, journal.observation_sums)
        forward(plan, work, rows)
        for r in range(rows):
            check = act(copies, start + r, work.output[r], rng, journal.samples[start + r, t])
            if check != 0:
                tell(journal, FAULT_IN_POLICY, start + r, t)

    def settle(copies, plan, work, eyes, journal, start, rows, t, gamma):
        cut = 0
        for i in range(start, start + rows):
            sample = journal.samples[i, t]
            count(copies, i, sample, journal, t, gamma)
            if sample.reward * 0 != 0:
                tell(journal, FAULT_IN_REWARD, i, t)
            if sample.ended == TRUNCATED:
                journal.waiting[cut] = i
                cut += 1
        if cut > 0:
            value_final(copies, plan, work, eyes, journal, cut, t)

    def value_final(copies, plan, work, eyes, journal, cut, t):
        """What follows the last observation of an episode that was cut off is worth its value."""
        input_row = plan.layers[0].source_row
        for r in range(cut):
            final = row(copies.final_observation, journal.waiting[r])
            check = look(final, eyes, journal.encoded, work.values[r * input_row : r * input_row + inputs])
            if check != 0:
                tell(journal, FAULT_IN_OBSERVATION, journal.waiting[r], t)
        forward(plan, work, cut)
        for r in range(cut):
            journal.samples[journal.waiting[r], t].final_value = work.output[r, value_column]

    def finish(copies, plan, work, eyes, journal, start, rows):
        input_row = plan.layers[0].source_row
        for r in range(rows):
            seen = row(copies.observation, start + r)
            check = look(seen, eyes, journal.encoded, work.values[r * input_row : r * input_row + inputs])
            if check != 0:
                tell(journal, FAULT_IN_OBSERVATION, start + r, journal.samples.shape[1] - 1)
        forward(plan, work, rows)
        for r in range(rows):
            journal.last_value[start + r] = work.output[r, value_column]

    return Stages(decide, settle, finish)


def collect_loop(life: Lifecycle, steps: Stages) -> Callable[..., Any]:
    """`collect(copies, plan, work, rng, eyes, journal, gamma)`: a rollout of all copies of one thread."""
    move, conclude, show = life.move, life.conclude, life.show
    decide, settle, finish = steps

    def collect(copies, plan, work, rng, eyes, journal, gamma):
        count, horizon = journal.samples.shape
        counters, begun = journal.counters, glance(True)
        for begin in range(0, count, ROWS):
            rows = min(ROWS, count - begin)
            # Unsigned, so that no index needs the test for a negative one, which would prevent vectorisation.
            first, stop = np.uint64(begin), np.uint64(begin + rows)
            for t in range(horizon):
                timed = turn(counters, FIRST_KIND, EVERY)
                since = start(counters, FIRST_KIND, timed)
                decide(copies, plan, work, rng, eyes, journal, begin, rows, t)
                since = lap(counters, POLICY, since, timed)
                for i in range(first, stop):
                    move(copies, i)
                for i in range(first, stop):
                    conclude(copies, i)
                for i in range(first, stop):
                    show(copies, i)
                since = lap(counters, ENVIRONMENT, since, timed)
                settle(copies, plan, work, eyes, journal, begin, rows, t, gamma)
                lap(counters, BUFFER, since, timed)
            since = glance(True)
            finish(copies, plan, work, eyes, journal, begin, rows)
            lap(counters, LAST_VALUES, since, True)
        lap(counters, WHOLE, begun, True)

    return collect


def tell(journal, kind, copy, step):
    """Record the first fault."""
    if journal.counts[FAULT] == NO_FAULT:
        journal.counts[FAULT] = kind
        journal.counts[FAULTY_COPY] = copy
        journal.counts[FAULTY_STEP] = step


def new_journal(samples: NDArray[Any], inputs: int) -> Journal:
    """An empty journal for one thread's part of a rollout."""
    copies, horizon = samples.shape
    return Journal(
        samples=samples,
        last_value=np.zeros(copies, np.float32),
        episodes=np.zeros(copies * horizon, EPISODE),
        counts=np.zeros(COUNTS, np.int64),
        observation_sums=np.zeros((2, inputs)),
        discounted=np.zeros(copies, np.float32),
        discounted_sums=np.zeros(2),
        waiting=np.zeros(ROWS, np.int64),
        encoded=np.zeros(inputs, np.float32),
        counters=allocate(1)[0],
    )
