"""Minibatches of a rollout, in an order shuffled on the device for each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from velocirl.buffers.records import GOES_ON
from velocirl.engine import random
from velocirl.engine.targets.launching import Work
from velocirl.program.clock import MINIBATCH, Clock, goes_on

ROUNDS = 8  # of a shuffle: with 4, some positions of a small order are 8 % more likely than others


class Extent(NamedTuple):
    """Sizes of a rollout and of its minibatches, for each agent."""

    agents: int
    copies: int
    horizon: int
    rows: int  # samples of a minibatch
    units: int  # number of shuffled units: single samples, or whole environments
    unit: int  # samples per unit: 1, or the horizon


def shuffle(s, r, t, order, rng, clock):  # noqa: ARG001 - every function of an index has the same first arguments
    """Shuffle the units of an agent sequentially (Fisher-Yates)."""
    for last in range(order.shape[1] - 1, 0, -1):
        other = random.integer(rng[s], 0, last + 1)
        order[s, last], order[s, other] = order[s, other], order[s, last]
    clock.counts[s, MINIBATCH] = -1


def draw_keys(s, r, t, keys, rng, clock):  # noqa: ARG001
    """Draw the keys of an agent's next order."""
    if goes_on(clock, s):
        for k in range(4):
            keys[s, k] = random.bits(rng[s])
    clock.counts[s, MINIBATCH] = -1


def draw(q, r, t, order, keys):  # noqa: ARG001
    """Compute one entry of a random order."""
    units = order.shape[1]
    s = q // units
    order[s, q - s * units] = shuffled(q - s * units, units, keys[s])


def rewind(s, r, t, clock):  # noqa: ARG001
    """Reset the minibatch index, so that the first minibatch comes next."""
    clock.counts[s, MINIBATCH] = -1


def choose(i, r, t, order, index, clock, extent):  # noqa: ARG001
    """Compute the rollout row (time-major) of a minibatch's row i.

    Whole rollouts of environments are ordered by time step, as a recurrent network reads them.
    """
    s = 0 if extent.agents == 1 else i // extent.rows  # on a GPU, a division costs more than the rest
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
    """Set whether an episode begins at a row of a minibatch, other than at the start of the rollout."""
    before = index[i] - extent.agents * extent.copies
    starts[i] = 1.0 if before >= 0 and rows[before].ended != GOES_ON else 0.0


def load_state(c, r, t, index, start_state, state, extent):  # noqa: ARG001
    """Load the recurrent state before an environment's first step; the minibatch's first rows are the first steps."""
    copy = index[c]  # row of the first step, which is the environment
    for k in range(state.shape[1]):
        state[c, k] = start_state[copy, k]


def shuffled(u, count, keys):
    """Return the image of u under a pseudorandom permutation of `count` numbers, computed without storing it.

    Each round is a bijection on integers with as many bits as `count` needs: add, multiply by an odd number, fold the
    upper half onto the lower. Results outside the range go through the rounds again (cycle walking).
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
            key = np.int64(keys[k & 3] >> np.uint64(1 + 15 * (k >> 2)))  # each word is used twice, with other bits
            x = (x + (key & mask)) & mask
            x = (x * (((key >> 31) << 1 | 1) & mask)) & mask
            x ^= x >> half
        inside = x < count
    return x


class Memory(NamedTuple):
    """Inputs of a recurrent network in addition to the rows of a minibatch."""

    steps: int  # rows are ordered as (steps, environments)
    starts: Any  # (rows,) 1 where an episode begins
    state: Any  # (environments, state size) before the first step
    work: Work  # finds the starts of rows
    load: Any  # loads the state


class Minibatches:
    """Order of an epoch, and the rows of the current minibatch."""

    def __init__(self, device: Any, extent: Extent, clock: Clock, seeds: Sequence[int], stream: int = 0) -> None:
        """`stream` is the number of the random stream: each process shuffles its own environments."""
        self._device, self._extent, self._clock = device, extent, clock
        agents, units = extent.agents, extent.units
        self.rng = device.put(np.concatenate([random.streams(seed, 1, stream) for seed in seeds]))
        self._order = order = device.zeros(agents, units, dtype=np.int32)
        self._as_they_lie = np.tile(np.arange(units, dtype=np.int32), (agents, 1))
        self.index = device.zeros(agents * extent.rows, dtype=np.int32)
        launch = device.launch
        self.rewind = launch([Work(rewind, (clock,))], agents)
        if device.sequential:  # as the native learner with one thread
            self._shuffles = [launch([Work(shuffle, (order, self.rng, clock))], agents)]
        else:
            keys = device.put(np.zeros((agents, 4), np.uint64))
            keying, drawing = Work(draw_keys, (keys, self.rng, clock)), Work(draw, (order, keys))
            self._shuffles = [launch([keying], agents), launch([drawing], agents * units)]

    @property
    def drawn(self) -> Work:
        """Work that finds the rows of the next minibatch, in shuffled order."""
        return Work(choose, (self._order, self.index, self._clock, self._extent))

    @property
    def in_order(self) -> Work:
        """Work that finds the rows of the next minibatch, in stored order."""
        order = self._device.put(self._as_they_lie)
        return Work(choose, (order, self.index, self._clock, self._extent))

    def begin(self) -> None:
        """Reset the order before the first epoch of an update."""
        if self._device.sequential:  # each shuffle starts from the order before it
            self._device.store(self._order, self._as_they_lie)

    def shuffle(self) -> None:
        """Shuffle the units."""
        for run in self._shuffles:
            run(0)

    def memory(self, rows: Any, start_state: Any) -> Memory:
        """Return the recurrent network's additional inputs for these records."""
        device, extent = self._device, self._extent
        together = extent.rows // extent.unit
        starts, state = device.zeros(extent.rows), device.zeros(together, start_state.shape[1])
        load = device.launch([Work(load_state, (self.index, start_state, state, extent))], together)
        return Memory(extent.unit, starts, state, Work(find_start, (self.index, rows, starts, extent)), load)
