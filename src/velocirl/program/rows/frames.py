"""Recording and reading of observations stored frame by frame; see `buffers.frames`.

As in `program.rows.recording`, functions are for one index, written once for every device. Where pixels are moved, an
index `n` is the number of a strip of `strip` pixels, among the strips of all frames of all environments or rows. A
strip is a whole frame on a CPU, and a single pixel on a GPU, where threads share the pixels of a frame.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.frames import Room, final_at, frame_at, frame_of, room_for, step_at
from velocirl.buffers.records import GOES_ON, LOST, TRUNCATED, Frames
from velocirl.buffers.replay import PLACE, TOTAL
from velocirl.buffers.sum_tree import CHILDREN, sum_up
from velocirl.program.pace import group_of
from velocirl.program.rows.recording import complete, note_cut

NONE = -1  # no row or slot
SHARE = 8  # environments in Python: room for final frames of episodes of at least SHARE steps


def room_of(frames: Frames, source: Any, config: Any) -> Room:
    """Return the sizes of a frame replay buffer.

    A compiled environment truncates no episode before its step limit, so no final frame of a stored record is lost.
    """
    copies, native = group_of(config), source.native
    groups = max(config.buffer_size // config.num_envs, 1) * config.num_envs // copies
    if native is None:
        finals = groups // SHARE + 1
    else:
        finals = 0 if native.max_steps is None else -(-groups // native.max_steps)
    return room_for(frames, copies, groups * copies, finals)


class Shown(NamedTuple):
    """Current observations, and the acting network's inputs."""

    observation: Any  # (environments, inputs) uint8: stacks, now, after an automatic reset
    final: Any  # (environments, inputs) uint8, the episode's last, if it ended in this step
    table: Any  # (1,) see `networks.encoding`
    inputs: Any  # (environments, inputs)


class Stacks(NamedTuple):
    """Stacked observations, one per row of a batch, assembled from frames as network inputs."""

    frames: Any  # (frames, size) uint8
    newest: Any  # (rows,) int64 index of each row's newest frame
    before: Any  # (rows,) int64 index of the frame before it
    age: Any  # (rows,) int64 number of the stack's frames before the newest
    table: Any  # (1,) see `networks.encoding`
    stack: int
    copies: int  # index distance between an environment's consecutive frames
    around: int  # length of the ring; indices wrap around


def strips_of(size: int, strip: int) -> int:
    """Return the number of strips in a frame of `size` pixels."""
    return -(-size // strip)


def strip_at(n, size, strip):
    """Return the number of a strip's frame, the strip's first pixel, and one past its last pixel."""
    strips = (size + strip - 1) // strip
    frame = n // strips
    begin = (n - frame * strips) * strip
    return frame, begin, min(begin + strip, size)


def load_strip(n, r, t, stacks, into, start, per, strip):  # noqa: ARG001 - every function of an index has the same first arguments
    """Write a strip of all rows' observations to the network's inputs, `per` times for each row."""
    size = stacks.frames.shape[1]
    number, begin, stop = strip_at(n, size, strip)
    q = number // stacks.stack
    k = number - q * stacks.stack
    i = q // per
    newest, before, age = stacks.newest[i], stacks.before[i], stacks.age[i]
    frame = stacks.frames[frame_of(newest, before, age, stacks.stack - 1 - k, stacks.copies, stacks.around)]
    read, at, factor = into[q], start + k * size, stacks.table[0].factor
    for p in range(begin, stop):
        read[at + p] = np.float32(frame[p]) * factor


def show(shown, i, at, begin, stop):
    """Write a strip of environment i's observation to the network's inputs; its frame begins at index `at`."""
    seen, read, factor = shown.observation[i], shown.inputs[i], shown.table[0].factor
    for p in range(at + begin, at + stop):
        read[p] = np.float32(seen[p]) * factor


def keep(seen, at, frame, begin, stop):
    """Store a strip of an observation; its frame begins at index `at`."""
    for p in range(begin, stop):
        frame[p] = seen[at + p]


# Rollouts -------------------------------------------------------------------------------------------------------------


class Film(NamedTuple):
    """Frames of a rollout: before its first step, of each step, and at the end of truncated episodes."""

    frames: Any  # (frames, size) uint8: (stack + horizon, environments), then (environments, cuts)
    stack: int
    copies: int
    cuts_from: int  # index of the first frame after those of the steps


def see_first(n, r, t, shown, film, strip):  # noqa: ARG001
    """Show the stack before the first step to the network, and store all its frames: no earlier ones exist."""
    size = film.frames.shape[1]
    number, begin, stop = strip_at(n, size, strip)
    i = number // film.stack
    k = number - i * film.stack
    show(shown, i, k * size, begin, stop)
    keep(shown.observation[i], k * size, film.frames[k * film.copies + i], begin, stop)


def see_next_frame(n, r, t, shown, rollout, cuts, film, strip):  # noqa: ARG001
    """Show the observation after step t to the network; store its newest frame, and a truncated episode's last one."""
    size = film.frames.shape[1]
    number, begin, stop = strip_at(n, size, strip)
    i = number // film.stack
    k = number - i * film.stack
    at = k * size
    show(shown, i, at, begin, stop)
    if k == film.stack - 1:
        keep(shown.observation[i], at, film.frames[(film.stack + t) * film.copies + i], begin, stop)
        if rollout.rows[i, t].ended == TRUNCATED:
            place = film.cuts_from + i * cuts.time.shape[1] + cuts.count[i] - 1
            keep(shown.final[i], at, film.frames[place], begin, stop)


def begin_age(i, r, t, rollout, film):  # noqa: ARG001
    """Set the age before the first step: the whole stack is stored."""
    rollout.rows[i, 0].age = film.stack - 1


def grow_older(i, r, t, rollout, film):  # noqa: ARG001
    """Update the number of stored frames of the episode that precede the next step's frame."""
    row = rollout.rows[i, t]
    rollout.rows[i, t + 1].age = 0 if row.ended != GOES_ON else min(row.age + 1, film.stack - 1)


def cut_film(i, r, t, final_mask, rollout, cuts):  # noqa: ARG001
    """Note a truncated episode; `see_next_frame` stores its last frame."""
    if rollout.rows[i, t].ended == TRUNCATED:
        note_cut(i, t, final_mask, rollout, cuts)


def find_sample(i, r, t, index, rows, stacks):  # noqa: ARG001
    """Find the frames of a minibatch row: stored step by step, after the frames from before the rollout."""
    stacks.newest[i] = index[i] + (stacks.stack - 1) * stacks.copies
    stacks.before[i] = stacks.newest[i] - stacks.copies
    stacks.age[i] = rows[index[i]].age


def find_cut(p, r, t, rollout, cuts, film, stacks):  # noqa: ARG001
    """Find the frames of a truncated episode's last observation; unused slots get any frames."""
    most = cuts.time.shape[1]
    i = p // most
    time = np.int64(cuts.time[i, p - i * most])
    stacks.newest[p] = film.cuts_from + p
    stacks.before[p] = (film.stack - 1 + time) * film.copies + i
    stacks.age[p] = min(rollout.rows[i, time].age + 1, film.stack - 1)


# Replay buffers -------------------------------------------------------------------------------------------------------


class Steps(NamedTuple):
    """Replay buffer with separately stored frames, as a step writes to it."""

    rows: Any  # (capacity,) narrow records
    counts: Any  # (3,); entry PLACE is the index of the first record of this step
    noise: Any  # (environments, action size) exploration noise state
    mask: Any  # (environments, choices) current action mask
    clock: Any  # int64 counts; only entry STEP is read


class Store(NamedTuple):
    """Frames of a replay buffer, and the indices to which a step's frames go."""

    frames: Any  # (frames, size) uint8
    age: Any  # (environments,) int32 frames of the episode before the current one
    into: Any  # (environments,) int64 index of the frame seen after the step
    ending: Any  # (environments,) int64 index of a truncated episode's last frame, or NONE
    cuts: Any  # (environments,) int64 number of truncated episodes
    owners: Any  # (environments, finals) int64 index of the record that owns each final frame, or NONE
    lost: Any  # (environments,) int64 index of a record that just lost its final frame, or NONE


def remember_frame(i, r, t, sight, told, ring, log):  # noqa: ARG001 - as every function of an index
    """Complete the record of environment i's step; its frame is already stored."""
    complete(i, t, sight, told, ring, log)


def see_now(n, r, t, shown, ring, store, room, strip):  # noqa: ARG001
    """Show the observation before an iteration's first step to the network, and store its newest frame.

    If the buffer is empty, store the earlier frames of the stack, too.
    """
    number, begin, stop = strip_at(n, room.size, strip)
    i = number // room.stack
    k = number - i * room.stack
    at, back, total = k * room.size, room.stack - 1 - k, ring.counts[TOTAL]
    show(shown, i, at, begin, stop)
    if back == 0 or total == 0:
        keep(shown.observation[i], at, store.frames[frame_at(room, total // room.copies - back, i)], begin, stop)


def place_frames(i, r, t, ring, store, room):  # noqa: ARG001
    """Choose the slots of the frames that environment i shows after its step, once the step is recorded.

    Final frames of truncated episodes replace the oldest ones. A record that still needs a replaced frame is then lost.
    """
    place = ring.counts[PLACE] + i
    row = ring.rows[place]
    row.age = store.age[i]
    store.age[i] = 0 if row.ended != GOES_ON else min(row.age + 1, room.stack - 1)
    store.into[i] = frame_at(room, ring.counts[TOTAL] // room.copies + 1, i)
    row.final = NONE
    store.ending[i] = NONE
    store.lost[i] = NONE
    if row.ended == TRUNCATED:
        final = store.cuts[i] % room.finals
        owner = store.owners[i, final]
        if owner != NONE:
            other = ring.rows[owner]
            if other.ended == TRUNCATED and other.final == final:
                other.ended = LOST
                store.lost[i] = owner
        store.owners[i, final] = place
        store.cuts[i] += 1
        row.final = final
        store.ending[i] = final_at(room, i, final)


def see_ahead(n, r, t, shown, store, room, strip):  # noqa: ARG001
    """Show the observation after a step to the network; store its newest frame, and a truncated episode's last one."""
    number, begin, stop = strip_at(n, room.size, strip)
    i = number // room.stack
    k = number - i * room.stack
    at = k * room.size
    show(shown, i, at, begin, stop)
    if k == room.stack - 1:
        keep(shown.observation[i], at, store.frames[store.into[i]], begin, stop)
        if store.ending[i] != NONE:
            keep(shown.final[i], at, store.frames[store.ending[i]], begin, stop)


def drop(i, r, t, ring, store):  # noqa: ARG001
    """Set the priority of a lost record to 0, so that it is no longer sampled."""
    leaf = store.lost[i]
    if leaf != NONE:
        ring.tree[leaf // CHILDREN, leaf % CHILDREN] = 0.0


def sum_dropped(i, r, level, ring, store):  # noqa: ARG001
    """Recompute the sum-tree node above a lost record; records that share a node write the same number."""
    node = store.lost[i]
    if node != NONE:
        for _ in range(level):
            node = node // CHILDREN
        sum_up(ring.tree, ring.starts, level, node)


def find_drawn(b, r, t, ring, drawn, now, after, room):  # noqa: ARG001
    """Find the frames of a sampled record, and of the observation after its n steps."""
    place, last = drawn.places[b], drawn.lasts[b]
    copy = place % room.copies
    step = step_at(ring.counts, room, place)
    now.newest[b] = frame_at(room, step, copy)
    now.before[b] = frame_at(room, step - 1, copy)
    now.age[b] = ring.rows[place].age
    row, step = ring.rows[last], step_at(ring.counts, room, last)
    after.newest[b] = final_at(room, copy, row.final) if row.ended == TRUNCATED else frame_at(room, step + 1, copy)
    after.before[b] = frame_at(room, step, copy)
    after.age[b] = min(row.age + 1, room.stack - 1)
