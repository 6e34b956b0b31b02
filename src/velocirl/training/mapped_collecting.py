"""A rollout as scalar functions of one copy, to be mapped over a fleet on any device: begin, step, finish.

The network's products stand between them and belong to torch. What is written about a copy is its own, so that the same
functions are loops on the CPU and kernels on a GPU; sums over copies are formed by reductions afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.rollout import GOES_ON, TRUNCATED
from velocirl.engine.lifecycle import Lifecycle
from velocirl.engine.registers import row
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.training.collecting import (
    FAULT_IN_OBSERVATION,
    FAULT_IN_POLICY,
    FAULT_IN_REWARD,
    NO_FAULT,
    scalars,
)  # fmt: skip

FAULT_KINDS = 4  # a copy's fault is 1 + step * FAULT_KINDS + kind, or 0


class Track(NamedTuple):
    """What a fleet records of a rollout, a place for each copy."""

    samples: Any  # (horizon + 1, copies) records; of the last row only the observation is written
    inputs: Any  # (copies, inputs) what the network reads next
    outputs: Any  # (copies, outputs) what it made of that
    state: Any  # (copies, state size) of a recurrent network, after that
    last_value: Any  # (copies,) of what is seen after the last step
    discounted: Any  # (copies,) the discounted return so far
    reward_sums: Any  # (copies, 2) float64, of the discounted returns and of their squares
    observation_sums: Any  # (copies, 2, inputs) float64, of what was seen and of its squares
    cut_count: Any  # (copies,) how many episodes were cut off in this rollout
    cut_time: Any  # (copies, cuts) when
    cut_inputs: Any  # (copies * cuts, inputs) their last observations
    cut_state: Any  # (copies * cuts, state size) and what a recurrent network remembered then
    cut_outputs: Any  # (copies * cuts, outputs) what the network made of those
    ends: Any  # (seeds, horizon, copies of each) the place of a step in the rollout where an episode ended, else -1
    end_returns: Any  # (seeds, horizon, copies of each) of that episode
    end_lengths: Any  # (seeds, horizon, copies of each)
    fault: Any  # (copies,) the first number that was not one


class Collecting(NamedTuple):
    """The functions of a rollout, each for one index."""

    begin: Callable[..., Any]  # (i, copies, track, eyes)
    act: Callable[..., Any]  # (i, copies, rng, track, t)
    settle: Callable[..., Any]  # (i, copies, track, eyes, t, gamma)
    step: Callable[..., Any]  # (i, copies, rng, track, eyes, t, gamma): act, the environment, settle
    finish: Callable[..., Any]  # (i, track)
    value_cut: Callable[..., Any]  # (r, track), for each place where a cut may have been


def collecting(
    head: Head, encoding: Encoding, write: Callable[..., Any], life: Lifecycle | None, recurrent: bool
) -> Collecting:
    """Compose a rollout for a policy; `life` is None where the environment steps in Python."""
    look, add_moments, draw, note = scalars(head, encoding, write)
    normalises, value_column = encoding.normalises, head.outputs
    move, conclude, show = (nothing,) * 3 if life is None else (life.move, life.conclude, life.show)

    def see(i, copies, track, eyes, t):
        """What copy i sees now becomes the network's input, and the observation of step t."""
        observation = row(copies.observation, i)
        if look(observation, eyes, track.samples[t, i].observation, row(track.inputs, i)) != 0:
            tell(track, FAULT_IN_OBSERVATION, i, t)

    def sum_up(i, copies, track):
        if normalises:
            add_moments(row(copies.observation, i), row(track.observation_sums, i))

    def begin(i, copies, track, eyes):
        track.cut_count[i] = 0
        track.fault[i] = NO_FAULT
        sums = row(track.reward_sums, i)
        sums[0] = 0.0
        sums[1] = 0.0
        if normalises:
            seen = row(track.observation_sums, i)
            for j in range(seen.shape[1]):
                seen[0, j] = 0.0
                seen[1, j] = 0.0
        see(i, copies, track, eyes, 0)

    def act(i, copies, rng, track, t):
        sum_up(i, copies, track)
        if draw(copies, i, track.outputs[i], rng, track.samples[t, i]) != 0:
            tell(track, FAULT_IN_POLICY, i, t)

    def settle(i, copies, track, eyes, t, gamma):
        sample = track.samples[t, i]
        discounted = note(copies, i, sample, track.discounted[i], gamma)
        sums = row(track.reward_sums, i)
        sums[0] += discounted
        sums[1] += np.float64(discounted) * np.float64(discounted)
        if sample.reward * 0 != 0:
            tell(track, FAULT_IN_REWARD, i, t)
        copies_of_each = track.ends.shape[2]
        s, n = i // copies_of_each, i % copies_of_each
        track.ends[s, t, n] = t * copies_of_each + n if sample.ended != GOES_ON else -1
        if sample.ended != GOES_ON:
            discounted = 0.0
            track.end_returns[s, t, n] = copies.episode_return[i]
            track.end_lengths[s, t, n] = copies.episode_length[i]
            if sample.ended == TRUNCATED:
                cut(i, copies, track, eyes, t)
            if recurrent:
                state = row(track.state, i)
                for k in range(len(state)):
                    state[k] = 0.0
        track.discounted[i] = discounted
        see(i, copies, track, eyes, t + 1)

    def cut(i, copies, track, eyes, t):
        """Keep the last observation of an episode that was cut off: what would have followed is worth its value."""
        times = row(track.cut_time, i)
        place = i * len(times) + track.cut_count[i]
        times[track.cut_count[i]] = t
        track.cut_count[i] += 1
        # The place of the next observation serves for encoding this one, before it is written itself.
        encoded = track.samples[t + 1, i].observation
        if look(row(copies.final_observation, i), eyes, encoded, row(track.cut_inputs, place)) != 0:
            tell(track, FAULT_IN_OBSERVATION, i, t)
        if recurrent:
            state, kept = row(track.state, i), row(track.cut_state, place)
            for k in range(len(state)):
                kept[k] = state[k]

    def step(i, copies, rng, track, eyes, t, gamma):
        act(i, copies, rng, track, t)
        move(copies, i)
        conclude(copies, i)
        show(copies, i)
        settle(i, copies, track, eyes, t, gamma)

    def finish(i, track):
        track.last_value[i] = track.outputs[i, value_column]

    def value_cut(r, track):
        times = row(track.cut_time, 0)
        i, k = r // len(times), r % len(times)
        if k < track.cut_count[i]:
            track.samples[row(track.cut_time, i)[k], i].final_value = track.cut_outputs[r, value_column]

    return Collecting(begin, act, settle, step, finish, value_cut)


def tell(track, kind, i, t):
    """Record a copy's first fault."""
    if track.fault[i] == NO_FAULT:
        track.fault[i] = 1 + t * FAULT_KINDS + kind


def nothing(copies, i):
    """In place of an environment that steps elsewhere."""
