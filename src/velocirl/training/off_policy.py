"""Learning from a memory: what an algorithm consists of, and the stages of a step: decide, remember, draw.

All copies step together, each step goes into a ring of records as one group, and every so many steps batches are drawn
from there to learn from. What is done for one copy or one record is a scalar function, the same on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.n_step import follow
from velocirl.buffers.replay import PLACE, Selection, written
from velocirl.buffers.rollout import GOES_ON, TERMINATED, TRUNCATED
from velocirl.engine.registers import row
from velocirl.engine.threads import SPACING
from velocirl.networks.encoding import Encoding
from velocirl.networks.mlp import ROWS
from velocirl.training.collecting import ENDED, FAULT_IN_OBSERVATION, FAULT_IN_POLICY, FAULT_IN_REWARD, tell
from velocirl.learners.counters import FIRST_KIND, PLACES, SECOND_KIND, Count, allocate

METRICS = 8  # the most that an algorithm can report: of each sample of its critics,
ACTOR_METRICS = 4  # and, from this column on, of each sample of its actor
# The places of `outcome`: updates of the whole run; samples and actor's samples, norms of the gradient and whether one
# was not finite, of an iteration.
UPDATES, SEEN, ACTED, NORMS, ACTOR_NORMS, FAULT, OUTCOME = 0, 1, 2, 3, 4, 5, 8
# What is counted of the steps, which take a microsecond where there is one copy, and of the updates.
ROUND, EVERY_ROUND, UPDATE, EVERY_UPDATE = FIRST_KIND, 31, SECOND_KIND, 13
STEPPING, LEARNING = PLACES, PLACES + 1  # the whole of each
POLICY, ENVIRONMENT, BUFFER, SAMPLE, TARGET, CRITIC, ACTOR, OPTIMISER, WAITING = range(PLACES + 2, PLACES + 11)
ROLLOUT_COUNTS = (
    Count("policy", POLICY, ROUND),
    Count("environment", ENVIRONMENT, ROUND),
    Count("buffer", BUFFER, ROUND),
)
UPDATE_COUNTS = (
    Count("sample", SAMPLE, UPDATE),
    Count("target", TARGET, UPDATE),
    Count("critic", CRITIC, UPDATE),
    Count("actor", ACTOR, UPDATE),
    Count("optimiser", OPTIMISER, UPDATE),
    Count("waiting", WAITING, UPDATE),
)


class Behaviour(NamedTuple):
    """How an algorithm acts in training."""

    draw: Callable[..., Any]  # (mask, rng, action): a random legal action
    act: Callable[..., Any]  # (output, mask, exploration, rng, noise, action); `noise` is kept from step to step
    write: Callable[..., Any]  # (actions, i, drawn): what the environment of copy i gets


class ValueLoss(NamedTuple):
    """What a network learns that values every action."""

    target: Callable[..., Any]  # (output, frozen, reward, discount, mask) -> goal; rows of the next observation
    needs_output: bool  # whether the target reads the row of the network itself, not only that of the frozen one
    loss_gradient: Callable[..., Any]  # (output, action, goal, weight, settings, gradient, metrics) -> error


class ActorCriticLoss(NamedTuple):
    """What an actor and two critics learn."""

    frozen_actor: bool  # whether the next action comes from a frozen actor, or from the actor itself
    dream: Callable[..., Any]  # (output, rng, settings, action) -> log-probability of the next action
    target: Callable[..., Any]  # (values, reward, discount, log_probability, temperature) -> goal of both critics
    critic_gradient: Callable[..., Any]  # (values, goal, weight, settings, gradient, metrics) -> error
    act_again: Callable[..., Any]  # (output, rng, settings, noise, action) -> log-probability
    value_slope: Callable[..., Any]  # (values, gradient): d actor's loss / d values
    # (output, noise, action, action_slope, log_probability, temperature, settings, gradient, metrics); the slope is
    # d loss / d action through the critics.
    actor_gradient: Callable[..., Any]
    learns_temperature: bool
    temperature_slope: Callable[..., Any]  # (log_probability, settings) -> d loss / d log temperature


class Memory(NamedTuple):
    """The ring of records, and how it is filled and drawn from."""

    rows: NDArray[Any]  # (capacity,) records, in groups of a record for each copy
    counts: NDArray[np.int64]
    rng: NDArray[np.uint64]  # (2,)
    book: Any  # of the selection
    encoded: NDArray[np.float32]  # (inputs,) neither centre nor scale: nothing is normalised
    copies: int
    n_step: int
    gamma: float


class Batch(NamedTuple):
    """What is drawn for one update, and what the threads share in it."""

    places: NDArray[np.int64]  # (batch,) of the records
    lasts: NDArray[np.int64]  # (batch,) of those whose next observation and mask count
    rewards: NDArray[np.float32]  # (batch,) of up to n steps
    discounts: NDArray[np.float32]  # (batch,) of what follows; 0 where nothing does
    weights: NDArray[np.float32]  # (batch,) of the losses
    errors: NDArray[np.float32]  # (batch,) what the update found
    meeting: NDArray[np.int64]  # where the threads wait for each other
    outcome: NDArray[np.float64]  # (OUTCOME,)
    counters: NDArray[np.int64]  # (threads, ROW) see `counters`


class Diary(NamedTuple):
    """What happened in some steps of the fleet."""

    episodes: NDArray[Any]  # EPISODE, those that ended
    counts: NDArray[np.int64]  # episodes that ended; kind, copy and step of the first fault


class Stages(NamedTuple):
    """A step of all copies, on either side of what the environment does, and a batch."""

    decide: Callable[..., Any]  # (copies, plan, work, rng, noise, memory, diary, warm, exploration, t): actions
    remember: Callable[..., Any]  # (copies, noise, memory, diary, t): what came of them
    draw_batch: Callable[..., Any]  # (memory, batch, beta)


def allocate_batch(size: int, meeting: int) -> Batch:
    """A batch of this size; `meeting` is how many numbers the threads need to meet."""
    places = np.zeros((2, size), np.int64)
    numbers = np.zeros((4, size), np.float32)
    shared = np.zeros(meeting, np.int64), np.zeros(OUTCOME), allocate(max(meeting // SPACING, 1))
    return Batch(*places, *numbers, *shared)  # pyright: ignore[reportCallIssue]


def stages(behaviour: Behaviour, encoding: Encoding, forward: Callable[..., Any], selection: Selection) -> Stages:
    """Compose the stages of an algorithm."""
    draw, act, write = behaviour
    inputs, encode = encoding.inputs, encoding.encode
    enter = selection.enter

    def decide(copies, plan, work, rng, noise, memory, diary, warm, exploration, t):
        """Look, and act: at random while `warm`, which asks no network."""
        input_row, place = plan.layers[0].source_row, memory.counts[PLACE]
        for start in range(0, len(copies.reward), ROWS):
            rows = min(ROWS, len(copies.reward) - start)
            for r in range(rows):
                i = start + r
                sample = memory.rows[place + i]
                check = encode(row(copies.observation, i), memory.encoded, memory.encoded, sample.observation)
                if check != 0:
                    tell(diary, FAULT_IN_OBSERVATION, i, t)
                into = work.values[r * input_row : r * input_row + inputs]
                for j in range(inputs):
                    into[j] = sample.observation[j]
            if not warm:
                forward(plan, work, rows)
            for r in range(rows):
                i = start + r
                sample = memory.rows[place + i]
                if warm:
                    draw(row(copies.mask, i), row(rng, i), sample.action)
                else:
                    output = work.output[r]
                    check = np.float32(0)
                    for j in range(len(output)):
                        check += output[j] * 0
                    if check != 0:
                        tell(diary, FAULT_IN_POLICY, i, t)
                    act(output, row(copies.mask, i), exploration, row(rng, i), row(noise, i), sample.action)
                write(copies.action, i, sample.action)

    def remember(copies, noise, memory, diary, t):
        """Complete the records of this step, and count the episodes that ended."""
        place, count = memory.counts[PLACE], len(copies.reward)
        for i in range(count):
            sample = memory.rows[place + i]
            sample.reward = copies.reward[i]
            if sample.reward * 0 != 0:
                tell(diary, FAULT_IN_REWARD, i, t)
            over = copies.terminated[i] or copies.truncated[i]
            sample.ended = TERMINATED if copies.terminated[i] else (TRUNCATED if over else GOES_ON)
            seen = row(copies.final_observation, i) if over else row(copies.observation, i)
            if encode(seen, memory.encoded, memory.encoded, sample.next_observation) != 0:
                tell(diary, FAULT_IN_OBSERVATION, i, t)
            mask = row(copies.mask, i)
            for k in range(len(sample.mask)):
                # That of a final observation is not known: by now it is the next episode's. Zeros forbid nothing.
                sample.mask[k] = 0 if over else mask[k]
            if over:
                pushed = row(noise, i)  # what pushes for long in an episode does not push in the next
                for k in range(len(pushed)):
                    pushed[k] = 0.0
                episode = diary.episodes[diary.counts[ENDED]]
                episode.step = t
                episode.copy = i
                episode.total = copies.episode_return[i]
                episode.length = copies.episode_length[i]
                diary.counts[ENDED] += 1
        written(memory.counts, len(memory.rows), count)
        enter(memory.book, memory.counts, place, count)

    return Stages(decide, remember, batch_drawer(selection))


def batch_drawer(selection: Selection) -> Callable[..., Any]:
    """`draw_batch(memory, batch, beta)`: random records, and what followed them."""
    select = selection.draw

    def draw_batch(memory, batch, beta):
        select(memory.book, memory.counts, memory.rng, beta, batch.places, batch.weights)
        for b in range(len(batch.places)):
            reward, discount, last = follow(
                memory.rows, memory.counts, memory.copies, batch.places[b], memory.n_step, memory.gamma
            )
            batch.rewards[b] = reward
            batch.discounts[b] = discount
            batch.lasts[b] = last

    return draw_batch
