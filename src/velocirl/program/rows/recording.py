"""What is recorded of a step of one copy: written once, for every device, for rollouts and memories alike.

The functions are for one index: copy i, which stands in row r of the block that is under way. They write what belongs
to that copy and nothing else, so that neither their order nor the number of threads can change what comes out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.records import GOES_ON, TERMINATED, TRUNCATED
from velocirl.buffers.replay import PLACE
from velocirl.networks.encoding import encode

NO_FAULT, FAULT_IN_OBSERVATION, FAULT_IN_REWARD, FAULT_IN_POLICY, FAULT_IN_STATE, FAULT_KINDS = range(6)
# An episode that ended, where they are listed one after the other.
EPISODE = np.dtype([("step", np.int32), ("copy", np.int32), ("total", np.float32), ("length", np.int32)])
STEP = 0  # the place of a clock's counts that says how many steps of the iteration were taken


class Sight(NamedTuple):
    """What copies see, and how it becomes what a network reads."""

    observation: Any  # (copies, raw) now, after an automatic reset
    final: Any  # (copies, raw) the last of the episode, where one ended in this step
    final_mask: Any  # (copies, choices) what was legal then, where it was truncated; zeros if unknown
    table: Any  # (fields,) see `networks.encoding`
    centre: Any  # (inputs,)
    inverse_scale: Any  # (inputs,)


class Outcome(NamedTuple):
    """What came of a step, as an environment tells it."""

    reward: Any  # (copies,)
    terminated: Any  # (copies,)
    truncated: Any  # (copies,)
    episode_return: Any  # (copies,) of the episode that ended last
    episode_length: Any  # (copies,)
    costs: Any  # (copies, constraints) of the step; of a fleet without constraints (1, 1)
    episode_costs: Any  # (copies, constraints) of the episode that ended last; NaN where no info has told a cost yet


class Log(NamedTuple):
    """What happened in the steps of an iteration: episodes that ended, and numbers that were none."""

    ends: Any  # (agents, steps, copies of each) the place of a step in the iteration where an episode ended, else -1
    returns: Any  # (agents, steps, copies of each) of that episode
    lengths: Any  # (agents, steps, copies of each)
    fault: Any  # (copies,) 1 + step * FAULT_KINDS + kind of the first number that was not one, or 0


class Rollout(NamedTuple):
    """What is recorded of a rollout; its last place in time has only the observation and its value."""

    rows: Any  # (copies, horizon + 1) narrow records
    observations: Any  # (copies, horizon + 1, inputs)
    values: Any  # (copies, horizon + 1, values) those fields of the rows,
    finals: Any  # (copies, horizon + 1, values) and those of the last observation of an episode that was cut off
    gamma: Any  # (1,)
    discounted: Any  # (copies,) the discounted return so far, for the scale of rewards
    reward_sums: Any  # (copies, 2) float64, of those and of their squares
    observation_sums: Any  # (copies, 2, inputs) float64, of what was seen and of its squares; (0, 0, 0) if nobody asks
    state: Any  # (copies, state size) of a recurrent network


class Cuts(NamedTuple):
    """The last observations of episodes truncated in a rollout; what would have followed is worth their value."""

    count: Any  # (copies,)
    time: Any  # (copies, cuts)
    inputs: Any  # (copies * cuts, inputs)
    mask: Any  # (copies * cuts, choices) what was legal then; zeros if unknown
    state: Any  # (copies * cuts, state size) what a recurrent network remembered then


class Ring(NamedTuple):
    """A memory as a step writes to it."""

    rows: Any  # (capacity,) narrow records
    observations: Any  # (capacity, inputs)
    next_observations: Any  # (capacity, inputs)
    counts: Any  # (3,) of which PLACE is where the group of this step begins
    noise: Any  # (copies, action size) what exploration keeps from step to step
    mask: Any  # (copies, choices) what is legal now
    clock: Any  # int64, of which STEP counts


def outcome(row, reward, terminated, truncated):
    """Record what came of a step; of both kinds of end, that of the environment counts."""
    row.reward = reward
    ended = GOES_ON
    if terminated:
        ended = TERMINATED
    elif truncated:
        ended = TRUNCATED
    row.ended = ended


def keep_costs(row, told, i):
    """Record what a step cost."""
    for k in range(len(row.costs)):
        row.costs[k] = told.costs[i, k]


def tell(log, kind, i, t):
    """Record a copy's first fault."""
    if log.fault[i] == NO_FAULT:
        log.fault[i] = 1 + t * FAULT_KINDS + kind


def log_end(log, told, i, t, ended):
    """Record whether an episode ended, and what came of it."""
    copies = log.ends.shape[2]
    s, n = i // copies, i % copies
    log.ends[s, t, n] = t * copies + n if ended != GOES_ON else -1
    if ended != GOES_ON:
        log.returns[s, t, n] = told.episode_return[i]
        log.lengths[s, t, n] = told.episode_length[i]


def not_finite(output):
    """Whether a number of a network's output is not one."""
    check = np.float32(0)
    for k in range(len(output)):
        check += output[k] * 0
    return check != 0


# Rollouts -------------------------------------------------------------------------------------------------------------


def begin_rollout(i, r, t, rollout, cuts, log):  # noqa: ARG001 - every function of an index has the same first arguments
    """Before the first step."""
    cuts.count[i] = 0
    log.fault[i] = NO_FAULT
    for k in range(2):
        rollout.reward_sums[i, k] = 0.0
    if len(rollout.observation_sums) > 0:
        for j in range(rollout.observation_sums.shape[2]):
            rollout.observation_sums[i, 0, j] = 0.0
            rollout.observation_sums[i, 1, j] = 0.0


def see(i, r, t, sight, inputs, rollout, log):
    """What a copy sees becomes what the network reads, and the observation of step t."""
    into, kept = inputs[r], rollout.observations[i, t]
    if encode(sight.observation[i], sight.table, sight.centre, sight.inverse_scale, into) != 0:
        tell(log, FAULT_IN_OBSERVATION, i, t)
    for j in range(len(kept)):
        kept[j] = into[j]


def add_moments(i, r, t, sight, rollout):  # noqa: ARG001
    """Add what a copy sees to the sums from which observations are normalised later."""
    sums, seen = rollout.observation_sums[i], sight.observation[i]
    for f in range(len(sight.table)):
        field = sight.table[f]
        for k in range(field.width if field.normalised else 0):
            number = np.float64(seen[field.raw + k])
            sums[0, field.start + k] += number
            sums[1, field.start + k] += number * number


def settle(i, r, t, told, rollout, log):  # noqa: ARG001
    """Record what came of a copy's step."""
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
    """Keep the last observation of an episode that was cut off."""
    if rollout.rows[i, t].ended == TRUNCATED:
        place = note_cut(i, t, sight.final_mask, rollout, cuts)
        if encode(sight.final[i], sight.table, sight.centre, sight.inverse_scale, cuts.inputs[place]) != 0:
            tell(log, FAULT_IN_OBSERVATION, i, t)


def note_cut(i, t, final_mask, rollout, cuts):
    """Keep when an episode was cut off, what was legal and what a recurrent network remembered then.

    Returns the place of the cut.
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
    """What a recurrent network remembers ends with an episode."""
    if rollout.rows[i, t].ended != GOES_ON:
        for k in range(rollout.state.shape[1]):
            rollout.state[i, k] = 0.0


# Memories -------------------------------------------------------------------------------------------------------------


def look(i, r, t, sight, inputs, ring, log):
    """What a copy sees becomes what the network reads, and the observation of the record that comes next."""
    look_ahead(i, r, t, sight, inputs, ring, log)
    note(i, r, t, inputs, ring)


def look_ahead(i, r, t, sight, inputs, ring, log):
    """What a copy sees becomes what the network reads; the record that lies where the next one will is still whole."""
    if encode(sight.observation[i], sight.table, sight.centre, sight.inverse_scale, inputs[r]) != 0:
        tell(log, FAULT_IN_OBSERVATION, i, t + ring.clock[STEP])


def note(i, r, t, inputs, ring):
    """Begin the record of a copy's step, with what the network read."""
    place = ring.counts[PLACE] + i
    into, kept = inputs[r], ring.observations[place]
    for j in range(len(kept)):
        kept[j] = into[j]
    note_mask(i, r, t, ring)


def note_mask(i, r, t, ring):  # noqa: ARG001
    """What was legal is kept with the step, for the update."""
    row = ring.rows[ring.counts[PLACE] + i]
    for k in range(len(row.mask)):
        row.mask[k] = ring.mask[i, k]


def remember(i, r, t, sight, told, ring, log):  # noqa: ARG001
    """Complete the record of a copy's step."""
    complete(i, t, sight, told, ring, log)
    place = ring.counts[PLACE] + i
    seen = sight.final[i] if ring.rows[place].ended != GOES_ON else sight.observation[i]
    if encode(seen, sight.table, sight.centre, sight.inverse_scale, ring.next_observations[place]) != 0:
        tell(log, FAULT_IN_OBSERVATION, i, t + ring.clock[STEP])


def complete(i, t, sight, told, ring, log):
    """Complete the record of a copy's step, but for its observations."""
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
        ):  # by now `ring.mask` is the next episode's; nothing follows a terminal state
            row.next_mask[k] = sight.final_mask[i, k] if truncated else 0
        for k in range(ring.noise.shape[1]):
            ring.noise[i, k] = 0.0  # what pushes for long in an episode does not push in the next
    log_end(log, told, i, now, row.ended)
