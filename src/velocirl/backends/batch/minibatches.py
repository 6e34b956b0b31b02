"""Which samples of a rollout make a minibatch: in an order that is drawn on the device, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.records import GOES_ON
from velocirl.engine import random
from velocirl.engine.targets.launching import Work
from velocirl.program.clock import MINIBATCH, Clock, goes_on

ROUNDS = 8  # of a shuffle: with 4, some places of a small order are 8 % more likely than others


class Extent(NamedTuple):
    """The sizes of a rollout and of its minibatches, for each agent."""

    agents: int
    copies: int
    horizon: int
    rows: int  # samples of a minibatch
    units: int  # that are drawn in an epoch: single samples, or copies
    unit: int  # samples of one: 1, or the horizon


def shuffle(s, r, t, order, rng, clock):  # noqa: ARG001 - every function of an index has the same first arguments
    """Put the units of an agent into a random order (Fisher and Yates), one after the other."""
    for last in range(order.shape[1] - 1, 0, -1):
        other = random.integer(rng[s], 0, last + 1)
        order[s, last], order[s, other] = order[s, other], order[s, last]
    clock.counts[s, MINIBATCH] = -1


def draw_keys(s, r, t, keys, rng, clock):  # noqa: ARG001
    """What an agent's next order follows from."""
    if goes_on(clock, s):
        for k in range(4):
            keys[s, k] = random.bits(rng[s])
    clock.counts[s, MINIBATCH] = -1


def draw(q, r, t, order, keys):  # noqa: ARG001
    """The place of one unit in a random order."""
    units = order.shape[1]
    s = q // units
    order[s, q - s * units] = shuffled(q - s * units, units, keys[s])


def rewind(s, r, t, clock):  # noqa: ARG001
    """The next minibatch is the first."""
    clock.counts[s, MINIBATCH] = -1


def choose(i, r, t, order, index, clock, extent):  # noqa: ARG001
    """Where the sample of a minibatch's row lies among the rows of all copies, which lie step by step.

    Whole rollouts of copies come with their steps one after the other, as a recurrent network reads them.
    """
    s = 0 if extent.agents == 1 else i // extent.rows  # a division costs a GPU more than all else here
    q = i - s * extent.rows
    m = clock.counts[s, MINIBATCH]
    if extent.unit == 1:
        u = order[s, m * extent.rows + q]
        copy = u // extent.horizon
        time = u - copy * extent.horizon
    else:
        together = extent.rows // extent.unit
        time = q // together
        copy = order[s, m * together + q - time * together]
    index[i] = (time * extent.agents + s) * extent.copies + copy


def find_start(i, r, t, index, rows, starts, extent):  # noqa: ARG001
    """Whether an episode begins at a row of a minibatch, other than with the rollout."""
    before = index[i] - extent.agents * extent.copies
    starts[i] = 1.0 if before >= 0 and rows[before].ended != GOES_ON else 0.0


def load_state(c, r, t, index, start_state, state, extent):  # noqa: ARG001
    """What a recurrent network remembered before the first step of a copy; the first steps of all come first."""
    copy = index[c]  # of the first step
    for k in range(state.shape[1]):
        state[c, k] = start_state[copy, k]


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


class Memory(NamedTuple):
    """What a recurrent network needs beside the rows of a minibatch."""

    steps: int  # rows lie as (steps, copies)
    starts: Any  # (rows,) 1 where an episode begins
    state: Any  # (copies, state size) before the first step
    work: Work  # what finds the starts of rows,
    load: Any  # and what loads the state


class Minibatches:
    """The order of an epoch, and the rows of the minibatch that is under way."""

    def __init__(self, device: Any, extent: Extent, clock: Clock, seeds: Sequence[int], stream: int = 0) -> None:
        """`stream` is the number of this process, each of which draws from its own copies."""
        self._device, self._extent, self._clock = device, extent, clock
        agents, units = extent.agents, extent.units
        self.rng = device.put(np.concatenate([random.streams(seed, 1, stream) for seed in seeds]))
        self._order = order = device.zeros(agents, units, dtype=np.int32)
        self._as_they_lie = np.tile(np.arange(units, dtype=np.int32), (agents, 1))
        self.index = device.zeros(agents * extent.rows, dtype=np.int32)
        launch = device.launch
        self.rewind = launch([Work(rewind, (clock,))], agents)
        if device.sequential:  # as the native learner does with one thread
            self._shuffles = [launch([Work(shuffle, (order, self.rng, clock))], agents)]
        else:
            keys = device.put(np.zeros((agents, 4), np.uint64))
            keying, drawing = Work(draw_keys, (keys, self.rng, clock)), Work(draw, (order, keys))
            self._shuffles = [launch([keying], agents), launch([drawing], agents * units)]

    @property
    def drawn(self) -> Work:
        """The work that finds the rows of the next minibatch, in the order that was drawn."""
        return Work(choose, (self._order, self.index, self._clock, self._extent))

    @property
    def in_order(self) -> Work:
        """The same in the order in which samples lie."""
        order = self._device.put(self._as_they_lie)
        return Work(choose, (order, self.index, self._clock, self._extent))

    def begin(self) -> None:
        """Before the first epoch of an update."""
        if self._device.sequential:  # each order follows from the one before
            self._device.store(self._order, self._as_they_lie)

    def shuffle(self) -> None:
        """Draw a new order."""
        for run in self._shuffles:
            run(0)

    def memory(self, rows: Any, start_state: Any) -> Memory:
        """What a recurrent network needs, of these records."""
        device, extent = self._device, self._extent
        together = extent.rows // extent.unit
        starts, state = device.zeros(extent.rows), device.zeros(together, start_state.shape[1])
        load = device.launch([Work(load_state, (self.index, start_state, state, extent))], together)
        return Memory(extent.unit, starts, state, Work(find_start, (self.index, rows, starts, extent)), load)
