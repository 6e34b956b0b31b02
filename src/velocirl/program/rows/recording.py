"""Recording of one environment's step: written once, for every device, for rollouts and replay buffers alike.

The functions are for one index: environment i, in row r of the current block. They write only this environment's data,
so neither their order nor the number of threads can change the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.buffers.replay import PLACE
from velocirl.networks.encoding import encode

NO_FAULT, FAULT_IN_OBSERVATION, FAULT_IN_REWARD, FAULT_IN_POLICY, FAULT_IN_STATE, FAULT_KINDS = range(6)
# A finished episode, as an entry of a list.
EPISODE = np.dtype([("step", np.int32), ("copy", np.int32), ("total", np.float32), ("length", np.int32)])
STEP = 0  # index in a clock's counts: steps taken in the iteration


class Sight(NamedTuple):
    """Environments' observations, and their encoding as network inputs."""

    observation: Any  # (environments, raw) now, after an automatic reset
    final: Any  # (environments, raw) the episode's last, if it ended in this step
    final_mask: Any  # (environments, choices) mask of `final` if truncated; zeros if unknown
    table: Any  # (fields,) see `networks.encoding`
    centre: Any  # (inputs,)
    inverse_scale: Any  # (inputs,)


class Outcome(NamedTuple):
    """Result of one environment step."""

    reward: Any  # (environments,)
    terminated: Any  # (environments,)
    truncated: Any  # (environments,)
    episode_return: Any  # (environments,) of the episode that ended last
    episode_length: Any  # (environments,)
    costs: Any  # (environments, constraints) of the step; (1, 1) for a fleet without constraints
    episode_costs: Any  # (environments, constraints) of the episode that ended last; NaN before any info had a cost


class Log(NamedTuple):
    """Events in an iteration's steps: episodes that ended, and non-finite values."""

    ends: Any  # (agents, steps, environments of each) index of a step in the iteration that ended an episode, else -1
    returns: Any  # (agents, steps, environments of each) of that episode
    lengths: Any  # (agents, steps, environments of each)
    fault: Any  # (environments,) 1 + step * FAULT_KINDS + kind of the first fault, or 0


class Rollout(NamedTuple):
    """Recorded rollout; its last time index has only the observation and its value."""

    rows: Any  # (environments, horizon + 1) narrow records
    observations: Any  # (environments, horizon + 1, inputs)
    values: Any  # (environments, horizon + 1, values) value fields of the rows
    finals: Any  # (environments, horizon + 1, values) values of truncated episodes' last observations
    gamma: Any  # (1,)
    discounted: Any  # (environments,) discounted return so far, for the scale of rewards
    reward_sums: Any  # (environments, 2) float64: sums of `discounted` and of its squares
    observation_sums: Any  # (environments, 2, inputs) float64: of observations, their squares; (0, 0, 0) if unused
    state: Any  # (environments, state size) of a recurrent network


class Cuts(NamedTuple):
    """Last observations of the episodes truncated in a rollout; returns bootstrap from their values."""

    count: Any  # (environments,)
    time: Any  # (environments, cuts)
    inputs: Any  # (environments * cuts, inputs)
    mask: Any  # (environments * cuts, choices) action mask; zeros if unknown
    state: Any  # (environments * cuts, state size) recurrent state


class Ring(NamedTuple):
    """Replay buffer, as a step writes to it."""

    rows: Any  # (capacity,) narrow records
    observations: Any  # (capacity, inputs)
    next_observations: Any  # (capacity, inputs)
    counts: Any  # (3,); entry PLACE is the index of the first record of this step
    noise: Any  # (environments, action size) exploration noise state
    mask: Any  # (environments, choices) current action mask
    clock: Any  # int64 counts; only entry STEP is read


def outcome(row, reward, terminated, truncated):
    """Record the result of a step; termination takes precedence over truncation."""
    row.reward = reward
    ended = GOES_ON
    if terminated:
        ended = TERMINATED
    elif truncated:
        ended = TRUNCATED
    row.ended = ended


def keep_costs(row, told, i):
    """Record the costs of a step."""
    for k in range(len(row.costs)):
        row.costs[k] = told.costs[i, k]


def tell(log, kind, i, t):
    """Record an environment's first fault."""
    if log.fault[i] == NO_FAULT:
        log.fault[i] = 1 + t * FAULT_KINDS + kind


def log_end(log, told, i, t, ended):
    """Record whether an episode ended, with its return and length."""
    copies = log.ends.shape[2]
    s, n = i // copies, i % copies
    log.ends[s, t, n] = t * copies + n if ended != GOES_ON else -1
    if ended != GOES_ON:
        log.returns[s, t, n] = told.episode_return[i]
        log.lengths[s, t, n] = told.episode_length[i]


def not_finite(output):
    """Return whether a network's output has a non-finite value."""
    check = np.float32(0)
    for k in range(len(output)):
        check += output[k] * 0
    return check != 0


# Rollouts -------------------------------------------------------------------------------------------------------------


def begin_rollout(i, r, t, rollout, cuts, log):  # noqa: ARG001 - every function of an index has the same first arguments
    """Reset environment i's counters and sums before the first step."""
    cuts.count[i] = 0
    log.fault[i] = NO_FAULT
    for k in range(2):
        rollout.reward_sums[i, k] = 0.0
    if len(rollout.observation_sums) > 0:
        for j in range(rollout.observation_sums.shape[2]):
            rollout.observation_sums[i, 0, j] = 0.0
            rollout.observation_sums[i, 1, j] = 0.0


def see(i, r, t, sight, inputs, rollout, log):
    """Encode environment i's observation for the network, and store it as the observation of step t."""
    into, kept = inputs[r], rollout.observations[i, t]
    if encode(sight.observation[i], sight.table, sight.centre, sight.inverse_scale, into) != 0:
        tell(log, FAULT_IN_OBSERVATION, i, t)
    for j in range(len(kept)):
        kept[j] = into[j]


def add_moments(i, r, t, sight, rollout):  # noqa: ARG001
    """Add environment i's observation to the sums that later update the normalization."""
    sums, seen = rollout.observation_sums[i], sight.observation[i]
    for f in range(len(sight.table)):
        field = sight.table[f]
        for k in range(field.width if field.normalised else 0):
            number = np.float64(seen[field.raw + k])
            sums[0, field.start + k] += number
            sums[1, field.start + k] += number * number


def settle(i, r, t, told, rollout, log):  # noqa: ARG001
    """Record the result of environment i's step."""
    row = rollout.rows[i, t]
    outcome(row, told.reward[i], told.terminated[i], told.truncated[i])
    for k in range(rollout.finals.shape[2]):
        rollout.finals[i, t, k] = 0.0
    discounted = rollout.discounted[i] * rollout.gamma[0] + row.reward
    rollout.reward_sums[i, 0] += discounted
    rollout.reward_sums[i, 1] += np.float64(discounted) * np.float64(discounted)
    if row.reward * 0 != 0:
        tell(log, FAULT_IN_REWARD, i, t)
    log_end(log, told, i, t, row.ended)
    rollout.discounted[i] = 0.0 if row.ended != GOES_ON else discounted


def cut(i, r, t, sight, rollout, cuts, log):  # noqa: ARG001
    """Store the last observation of a truncated episode."""
    if rollout.rows[i, t].ended == TRUNCATED:
        place = note_cut(i, t, sight.final_mask, rollout, cuts)
        if encode(sight.final[i], sight.table, sight.centre, sight.inverse_scale, cuts.inputs[place]) != 0:
            tell(log, FAULT_IN_OBSERVATION, i, t)


def note_cut(i, t, final_mask, rollout, cuts):
    """Store a truncated episode's time, action mask and recurrent state.

    Returns the index of the truncation.
    """
    place = i * cuts.time.shape[1] + cuts.count[i]
    cuts.time[i, cuts.count[i]] = t
    cuts.count[i] += 1
    for k in range(cuts.mask.shape[1]):
        cuts.mask[place, k] = final_mask[i, k]
    for k in range(rollout.state.shape[1]):
        cuts.state[place, k] = rollout.state[i, k]
    return place


def forget(i, r, t, rollout):  # noqa: ARG001
    """Reset the recurrent state at the end of an episode."""
    if rollout.rows[i, t].ended != GOES_ON:
        for k in range(rollout.state.shape[1]):
            rollout.state[i, k] = 0.0


# Replay buffers -------------------------------------------------------------------------------------------------------


def look(i, r, t, sight, inputs, ring, log):
    """Encode environment i's observation for the network, and store it in the next record."""
    look_ahead(i, r, t, sight, inputs, ring, log)
    note(i, r, t, inputs, ring)


def look_ahead(i, r, t, sight, inputs, ring, log):
    """Encode environment i's observation for the network; leave the record at the next index intact."""
    if encode(sight.observation[i], sight.table, sight.centre, sight.inverse_scale, inputs[r]) != 0:
        tell(log, FAULT_IN_OBSERVATION, i, t + ring.clock[STEP])


def note(i, r, t, inputs, ring):
    """Begin the record of environment i's step with the network's input."""
    place = ring.counts[PLACE] + i
    into, kept = inputs[r], ring.observations[place]
    for j in range(len(kept)):
        kept[j] = into[j]
    note_mask(i, r, t, ring)


def note_mask(i, r, t, ring):  # noqa: ARG001
    """Store the action mask with the step, for the update."""
    row = ring.rows[ring.counts[PLACE] + i]
    for k in range(len(row.mask)):
        row.mask[k] = ring.mask[i, k]


def remember(i, r, t, sight, told, ring, log):  # noqa: ARG001
    """Complete the record of environment i's step."""
    complete(i, t, sight, told, ring, log)
    place = ring.counts[PLACE] + i
    seen = sight.final[i] if ring.rows[place].ended != GOES_ON else sight.observation[i]
    if encode(seen, sight.table, sight.centre, sight.inverse_scale, ring.next_observations[place]) != 0:
        tell(log, FAULT_IN_OBSERVATION, i, t + ring.clock[STEP])


def complete(i, t, sight, told, ring, log):
    """Complete the record of environment i's step, except for its observations."""
    now, row = t + ring.clock[STEP], ring.rows[ring.counts[PLACE] + i]
    outcome(row, told.reward[i], told.terminated[i], told.truncated[i])
    if row.reward * 0 != 0:
        tell(log, FAULT_IN_REWARD, i, now)
    over = row.ended != GOES_ON
    for k in range(len(row.next_mask)):
        row.next_mask[k] = ring.mask[i, k]
    if over:
        truncated = row.ended == TRUNCATED
        for k in range(
            len(row.next_mask)
        ):  # `ring.mask` is already the next episode's; a terminal state has no next actions
            row.next_mask[k] = sight.final_mask[i, k] if truncated else 0
        for k in range(ring.noise.shape[1]):
            ring.noise[i, k] = 0.0  # correlated noise does not carry over into the next episode
    log_end(log, told, i, now, row.ended)
