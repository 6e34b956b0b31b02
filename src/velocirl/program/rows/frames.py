"""What is recorded and read of observations that are stored frame by frame; see `buffers.frames`.

As in `recording`, functions are for one index, written once for every device. Where pixels are moved, an index `n` is
that of a strip of `strip` pixels, among those of all frames of all copies or rows: on a CPU a whole frame, and single
pixels on a GPU, so that it shares them out.
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

NONE = -1  # a row or a place of nothing
SHARE = 8  # where Python steps, there is room for the last frames of episodes of at least so many steps


def room_of(frames: Frames, source: Any, config: Any) -> Room:
    """The sizes of a memory of frames.

    A compiled environment cuts no episode off before its limit, so that none is ever lost of those that are remembered.
    """
    copies, native = group_of(config), source.native
    groups = max(config.buffer_size // config.num_envs, 1) * config.num_envs // copies
    if native is None:
        finals = groups // SHARE + 1
    else:
        finals = 0 if native.max_steps is None else -(-groups // native.max_steps)
    return room_for(frames, copies, groups * copies, finals)


class Shown(NamedTuple):
    """What copies see, and what the network that acts reads of it."""

    observation: Any  # (copies, inputs) uint8: stacks, now, after an automatic reset
    final: Any  # (copies, inputs) uint8, the last of the episode, where one ended in this step
    table: Any  # (1,) see `networks.encoding`
    inputs: Any  # (copies, inputs)


class Stacks(NamedTuple):
    """Observations that are put together from frames, as networks read them: one for each row of a batch."""

    frames: Any  # (frames, size) uint8
    newest: Any  # (rows,) int64 the place of each row's newest frame,
    before: Any  # (rows,) int64 that of the one before it,
    age: Any  # (rows,) int64 and how many of the stack there are before it
    table: Any  # (1,) see `networks.encoding`
    stack: int
    copies: int  # places from one frame to the next of the same copy
    around: int  # the frames of a ring, where places go around


def strips_of(size: int, strip: int) -> int:
    """How many strips a frame of so many pixels has."""
    return -(-size // strip)


def strip_at(n, size, strip):
    """The frame to which a strip belongs, its first pixel, and the one after its last."""
    strips = (size + strip - 1) // strip
    frame = n // strips
    begin = (n - frame * strips) * strip
    return frame, begin, min(begin + strip, size)


def load_strip(n, r, t, stacks, into, start, per, strip):  # noqa: ARG001 - every function of an index has the same first arguments
    """Write a strip of the observations of all rows to where a network reads it, `per` times for each row."""
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
    """Let the network read what copy i sees, of the frame that begins at a place."""
    seen, read, factor = shown.observation[i], shown.inputs[i], shown.table[0].factor
    for p in range(at + begin, at + stop):
        read[p] = np.float32(seen[p]) * factor


def keep(seen, at, frame, begin, stop):
    """Keep a strip of the frame that begins at a place of what is seen."""
    for p in range(begin, stop):
        frame[p] = seen[at + p]


# Rollouts -------------------------------------------------------------------------------------------------------------


class Film(NamedTuple):
    """The frames of a rollout: those before its first step, of each step, and of episodes that were cut off."""

    frames: Any  # (frames, size) uint8: (stack + horizon, copies) of them, and behind those (copies, cuts)
    stack: int
    copies: int
    cuts_from: int  # the first place behind those of the steps


def see_first(n, r, t, shown, film, strip):  # noqa: ARG001
    """What a copy sees before the first step, with the frames before: as a new episode, which nothing came before."""
    size = film.frames.shape[1]
    number, begin, stop = strip_at(n, size, strip)
    i = number // film.stack
    k = number - i * film.stack
    show(shown, i, k * size, begin, stop)
    keep(shown.observation[i], k * size, film.frames[k * film.copies + i], begin, stop)


def see_next_frame(n, r, t, shown, rollout, cuts, film, strip):  # noqa: ARG001
    """What a copy sees after step t: its newest frame, and the last of an episode that was cut off."""
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
    """Before the first step all frames are there."""
    rollout.rows[i, 0].age = film.stack - 1


def grow_older(i, r, t, rollout, film):  # noqa: ARG001
    """How many frames of the episode lie before that of the next step."""
    row = rollout.rows[i, t]
    rollout.rows[i, t + 1].age = 0 if row.ended != GOES_ON else min(row.age + 1, film.stack - 1)


def cut_film(i, r, t, final_mask, rollout, cuts):  # noqa: ARG001
    """An episode was cut off; its last frame follows."""
    if rollout.rows[i, t].ended == TRUNCATED:
        note_cut(i, t, final_mask, rollout, cuts)


def find_sample(i, r, t, index, rows, stacks):  # noqa: ARG001
    """Where the frames of a minibatch's row lie: step by step, behind those before the rollout."""
    stacks.newest[i] = index[i] + (stacks.stack - 1) * stacks.copies
    stacks.before[i] = stacks.newest[i] - stacks.copies
    stacks.age[i] = rows[index[i]].age


def find_cut(p, r, t, rollout, cuts, film, stacks):  # noqa: ARG001
    """The same of the last observation of an episode that was cut off; of what was not, any."""
    most = cuts.time.shape[1]
    i = p // most
    time = np.int64(cuts.time[i, p - i * most])
    stacks.newest[p] = film.cuts_from + p
    stacks.before[p] = (film.stack - 1 + time) * film.copies + i
    stacks.age[p] = min(rollout.rows[i, time].age + 1, film.stack - 1)


# Memories -------------------------------------------------------------------------------------------------------------


class Steps(NamedTuple):
    """A memory whose frames lie elsewhere, as a step writes to it."""

    rows: Any  # (capacity,) narrow records
    counts: Any  # (3,) of which PLACE is where the group of this step begins
    noise: Any  # (copies, action size) what exploration keeps from step to step
    mask: Any  # (copies, choices) what is legal now
    clock: Any  # int64, of which STEP counts


class Store(NamedTuple):
    """The frames of a memory, and where those of a step go."""

    frames: Any  # (frames, size) uint8
    age: Any  # (copies,) int32 how many frames of the episode lie before the one that is seen now
    into: Any  # (copies,) int64 the place of the frame that is seen after the step
    ending: Any  # (copies,) int64 that of the last frame of an episode that was cut off, or NONE
    cuts: Any  # (copies,) int64 how many there were of those
    owners: Any  # (copies, finals) int64 the places of the records that they belong to, or NONE
    lost: Any  # (copies,) int64 the place of a record that has just lost its own, or NONE


def remember_frame(i, r, t, sight, told, ring, log):  # noqa: ARG001 - as every function of an index
    """Complete the record of a copy's step; its frame is there already."""
    complete(i, t, sight, told, ring, log)


def see_now(n, r, t, shown, ring, store, room, strip):  # noqa: ARG001
    """What a copy sees before the first step of an iteration; where nothing is remembered, with the frames before."""
    number, begin, stop = strip_at(n, room.size, strip)
    i = number // room.stack
    k = number - i * room.stack
    at, back, total = k * room.size, room.stack - 1 - k, ring.counts[TOTAL]
    show(shown, i, at, begin, stop)
    if back == 0 or total == 0:
        keep(shown.observation[i], at, store.frames[frame_at(room, total // room.copies - back, i)], begin, stop)


def place_frames(i, r, t, ring, store, room):  # noqa: ARG001
    """Find where the frames go that a copy sees after its step, once that is recorded.

    Frames of episodes that were cut off take the places of the oldest ones. A record that still needs one is lost then.
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
    """What a copy sees after a step: its newest frame, and the last of an episode that was cut off."""
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
    """A record that was lost is not drawn any more."""
    leaf = store.lost[i]
    if leaf != NONE:
        ring.tree[leaf // CHILDREN, leaf % CHILDREN] = 0.0


def sum_dropped(i, r, level, ring, store):  # noqa: ARG001
    """Sum the node above such a record anew; those that share one write the same number."""
    node = store.lost[i]
    if node != NONE:
        for _ in range(level):
            node = node // CHILDREN
        sum_up(ring.tree, ring.starts, level, node)


def find_drawn(b, r, t, ring, drawn, now, after, room):  # noqa: ARG001
    """Where the frames of a record that was drawn lie, and those of the observation after its n steps."""
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
