"""Replay buffer on a device: a ring of records, sampling and priorities, as functions of one index.

Values that change from step to step (indices, counters, an iteration's schedule) are stored on the device. A fleet step
and an update are therefore fixed sequences of work without host synchronization.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.frames.collected import frames_of
from velocirl.backends.batch.frames.stored_rows import StoredRows
from velocirl.buffers.n_step import cut_off, fill_transition, follow, follow_costs
from velocirl.buffers.prioritised import fraction, power
from velocirl.buffers.records import GOES_ON, LOST, TRUNCATED, drawn_type, narrow, narrow_type, transition_type
from velocirl.buffers.replay import FILLED, MOST_ROWS, PLACE, TOTAL
from velocirl.buffers.sum_tree import CHILDREN, allocate_tree, find, leaf_of, sum_up, total_of
from velocirl.engine import random
from velocirl.engine.disk.allowance import claim
from velocirl.engine.disk.saved import named, within
from velocirl.engine.targets.launching import Work
from velocirl.program.clock import FAULT, RUN_STEP, STEP, Clock
from velocirl.program.faults import DeviceMemoryError, lacks_memory
from velocirl.program.pace import PACE, beta_at, exploration_at, group_of
from velocirl.program.reducing import Share
from velocirl.program.rows.frames import room_of
from velocirl.program.task import Task

EPSILON = 1e-6  # added to every priority, so that each record can be sampled


class Places(NamedTuple):
    """Ring and priorities, as arguments of index functions."""

    rows: Any  # (capacity,) narrow records
    counts: Any  # (3,) PLACE, FILLED, TOTAL
    tree: Any  # (rows, CHILDREN) priorities^alpha and their sums; see `buffers.sum_tree`
    starts: Any  # (levels,) first row of each level
    greatest: Any  # (1,) float32, maximum of priorities^alpha so far


class Drawn(NamedTuple):
    """One sampled batch."""

    places: Any  # (batch,) int64
    lasts: Any  # (batch,) int64, indices of the last of up to n steps, with the next observation
    leaves: Any  # (batch,) priorities^alpha, after the update the new ones
    least: Any  # (1,) minimum of `leaves`
    rows: Any  # (batch,) records


class Extent(NamedTuple):
    """Sizes of sampling."""

    copies: int
    batch: int
    capacity: int
    n_step: int
    pace: Any  # (1,) PACE
    alpha: float
    all_copies: int  # environments of all processes


class Timing(NamedTuple):
    """Schedule of an iteration, and values derived from it."""

    clock: Clock
    pace: Any  # (1,) PACE
    exploration: Any  # (1,) float32


def begin_iteration(i, r, t, timing):  # noqa: ARG001 - every function of an index has the same first arguments
    """Set the exploration of an iteration's first step."""
    timing.exploration[0] = exploration_at(timing.clock.counts[0, RUN_STEP], timing.pace[0])


def advance(i, r, t, ring, timing, extent):  # noqa: ARG001
    """Advance the counts after a step of all environments, and set the next exploration."""
    place = ring.counts[PLACE] + extent.copies
    ring.counts[PLACE] = place if place < extent.capacity else 0
    ring.counts[FILLED] = min(ring.counts[FILLED] + extent.copies, extent.capacity)
    ring.counts[TOTAL] += extent.copies
    counts = timing.clock.counts
    counts[0, STEP] += 1
    counts[0, RUN_STEP] += extent.all_copies
    timing.exploration[0] = exploration_at(counts[0, RUN_STEP], timing.pace[0])


def admit(i, r, t, ring):  # noqa: ARG001
    """Give environment i's newest record the greatest priority so far; runs before `advance`."""
    leaf = ring.counts[PLACE] + i
    ring.tree[leaf // CHILDREN, leaf % CHILDREN] = ring.greatest[0]


def sum_newest(k, r, level, ring, extent):  # noqa: ARG001
    """Recompute the k-th node of a level above the newest group."""
    below = np.int64(1)
    for _ in range(level):
        below *= CHILDREN
    node = ring.counts[PLACE] // below + k
    if node <= (ring.counts[PLACE] + extent.copies - 1) // below:
        sum_up(ring.tree, ring.starts, level, node)


def sum_drawn(b, r, level, ring, drawn):  # noqa: ARG001
    """Recompute the node above a sampled record; threads with the same node write the same number."""
    node = drawn.places[b]
    for _ in range(level):
        node = node // CHILDREN
    sum_up(ring.tree, ring.starts, level, node)


def sum_all(node, r, level, ring):  # noqa: ARG001
    """Recompute a node of a level."""
    sum_up(ring.tree, ring.starts, level, node)


def draw(b, r, t, ring, drawn, rng, extent):  # noqa: ARG001
    """Sample a record uniformly."""
    drawn.rows[b].weight = 1.0
    place = random.integer(rng[b], 0, ring.counts[FILLED])
    while ring.rows[place].ended == LOST:  # ends: the newest record is never lost
        place = random.integer(rng[b], 0, ring.counts[FILLED])
    note(b, place, ring, drawn, extent)


def draw_by_share(b, r, t, ring, drawn, rng, extent):  # noqa: ARG001
    """Sample a record by priority from the b-th of `batch` equal strata; indices never decrease with b."""
    share = total_of(ring.tree) / np.float64(extent.batch)
    place = find(ring.tree, ring.starts, (np.float64(b) + fraction(rng[b])) * share)
    drawn.leaves[b] = leaf_of(ring.tree, place)
    note(b, place, ring, drawn, extent)


def note(b, place, ring, drawn, extent):
    """Copy a sampled record to its row of the batch, with its n-step return."""
    reward, discount, last = follow(ring.rows, ring.counts, extent.copies, place, extent.n_step, extent.pace[0].gamma)
    drawn.places[b] = place
    drawn.lasts[b] = last
    fill_transition(drawn.rows[b], ring.rows[place], ring.rows[last], reward, discount)


def find_costs(b, r, t, ring, drawn, extent):  # noqa: ARG001
    """Add up the costs of a sampled record's steps."""
    follow_costs(ring.rows, extent.copies, drawn.places[b], drawn.lasts[b], extent.pace[0].gamma, drawn.rows[b].costs)


def find_next(b, r, t, ring, drawn):  # noqa: ARG001
    """Copy the action after a sampled record's last step."""
    row, last = drawn.rows[b], ring.rows[drawn.lasts[b]]
    for k in range(len(row.next_action)):
        row.next_action[k] = last.next_action[k]
    row.has_next = last.has_next


def weigh(b, r, t, drawn, timing):  # noqa: ARG001
    """Compute the importance weight in the loss, normalized to a maximum of 1 in the batch."""
    beta = beta_at(timing.clock.counts[0, RUN_STEP], timing.pace[0])
    drawn.rows[b].weight = np.float32(power(drawn.least[0] / drawn.leaves[b], beta))


def rate(b, r, t, drawn, clock, extent):  # noqa: ARG001
    """Compute the new priority of a record from its error."""
    sound = clock.counts[0, FAULT] == 0
    drawn.leaves[b] = power(abs(drawn.rows[b].error) + np.float32(EPSILON), extent.alpha) if sound else 0.0


def revise(b, r, t, ring, drawn, clock):  # noqa: ARG001
    """Write a new priority; a record sampled several times is in adjacent rows, and the last row counts."""
    ours = b + 1 == len(drawn.places) or drawn.places[b + 1] != drawn.places[b]
    if ours and clock.counts[0, FAULT] == 0:
        leaf = drawn.places[b]
        ring.tree[leaf // CHILDREN, leaf % CHILDREN] = drawn.leaves[b]


class BatchRing:
    """Ring of single-step records in groups, one group for each step of the fleet."""

    def __init__(self, device: Any, task: Task, clock: Clock, share: Share) -> None:
        """`share` is the range of a batch's rows that this process samples."""
        config = task.config
        self.device, self._config = device, config
        self._reads_costs, self._reads_next = task.reads_costs, task.reads_next
        self._all_copies = group_of(config)
        self._group = self._all_copies
        if task.reducer.size > 1 and task.recorded is None:
            self._group = task.part.copies
        self._share, self._batch, zeros = share, share[1] - share[0], device.zeros
        batch = self._batch
        self.capacity = self._capacity(task)
        self.prioritised = config.priority == "proportional"
        # Record of a step; where frames are stored separately, `rows` have all other fields.
        self.kind = transition_type(task.encoding.inputs, task.action, task.stored, task.frames)
        kind = self.kind if task.frames is None else narrow_type(self.kind)
        room = None if task.frames is None else room_of(task.frames, task.source, config)
        tree, starts = allocate_tree(self.capacity if self.prioritised else 1)
        size = self.capacity * kind.itemsize + (0 if room is None else room.rows * room.size) + tree.nbytes
        if device.name != "cuda":
            claim(size, f"a memory of {self.capacity:,} transitions (buffer_size)")
        with tells_of_ring(device.name, self.capacity, size // self.capacity):
            self.rows = device.records((self.capacity,), kind)
            self.frames = None if task.frames is None else frames_of(device, task)
        self._starts = starts
        self.tree, self.counts, self.greatest = zeros(*tree.shape), zeros(3, dtype=np.int64), zeros(1)
        device.fill(self.greatest, 1.0)
        self.places = Places(narrow(self.rows), self.counts, self.tree, device.put(starts), self.greatest)
        numbers = zeros(batch, dtype=np.int64), zeros(batch, dtype=np.int64), zeros(batch), zeros(1)
        self.drawn = Drawn(*numbers, device.records((batch,), drawn_type(task.action, task.fields)))
        seed = task.seeds.learner
        self._own_stream = random.streams(seed, 1)[0]  # the native learner samples with this stream
        # One stream per row of a batch; where rows are sampled sequentially, they all share one stream.
        alone = np.lib.stride_tricks.as_strided(self._own_stream, (batch, 2), (0, 8))
        self.place = 0  # PLACE on the host, for groups from the host
        self.streams = alone if device.sequential else device.put(random.streams(seed, batch, share[0]))
        self.pace = device.records((1,), PACE)
        self.timing = Timing(clock, self.pace, zeros(1))
        self.seen, self.seen_timing = self._view(clock)
        self._bind()

    def _capacity(self, task: Task) -> int:
        """Return the number of records: whole groups, with one record per environment."""
        size = task.config.buffer_size
        if size > MOST_ROWS:
            raise ValueError(f"buffer_size must be at most {MOST_ROWS:,}, got {size:,}")
        return max(size // task.config.num_envs, 1) * task.part.copies

    def _view(self, clock: Clock) -> tuple[Places, Timing]:  # noqa: ARG002 - who lags has a clock of its own
        """Return the learner's view of the ring and its timing, here without lag."""
        return self.places, self.timing

    def _bind(self) -> None:
        launch, places, drawn = self.device.launch, self.seen, self.drawn
        clock, copies, batch, extent = self.seen_timing.clock, self._group, self._batch, self.extent
        self._begin = launch([Work(begin_iteration, (self.timing,))], 1)
        self._advance = launch([Work(advance, (self.places, self.timing, extent))], 1)
        costs = [Work(find_costs, (places, drawn, extent))] if self._reads_costs else []
        following = [Work(find_next, (places, drawn))] if self._reads_next else []
        finds = [] if self.frames is None else [self.frames.finds(places, drawn)]
        self._draw = launch([self._choosing(), *costs, *following, *finds], batch)
        if not self.prioritised:
            return
        levels = self.levels
        self._admit = launch([Work(admit, (places,))], copies)
        self._weigh = launch([Work(weigh, (drawn, self.seen_timing))], batch)
        self._rate = launch([Work(rate, (drawn, clock, extent))], batch)
        self._revise = launch([Work(revise, (places, drawn, clock))], batch)
        self._sum_drawn = launch([Work(sum_drawn, (places, drawn))], batch)
        # Per level: the nodes above a group, and all nodes.
        near = [(level, copies // CHILDREN**level + 2) for level in levels]
        every = [(level, -(-self.capacity // CHILDREN**level)) for level in levels]
        self._sum_newest = [(level, launch([Work(sum_newest, (places, extent))], count)) for level, count in near]
        self._sum_all = [(level, launch([Work(sum_all, (places,))], count)) for level, count in every]

    def _choosing(self) -> Work:
        """Return the work that samples a record."""
        choose = draw_by_share if self.prioritised else draw
        return Work(choose, (self.seen, self.drawn, self.streams, self.extent))

    @property
    def extent(self) -> Extent:
        """Sizes of sampling."""
        config = self._config
        numbers = config.n_step, self.pace, float(config.priority_alpha)
        return Extent(self._group, self._batch, self.capacity, *numbers, self._all_copies)

    @property
    def levels(self) -> range:
        """Levels of the priority tree above its leaves; empty without priorities."""
        return range(1, len(self._starts) if self.prioritised else 1)

    def bind_frames(self, observation: Any, final: Any, *, on_host: bool) -> None:
        """Bind the observation arrays that frames are read from."""
        assert self.frames is not None  # noqa: S101 - only then it is called
        self.frames.bind(self.places, self.levels, observation, final, on_host=on_host)

    def begin(self, pace: Any) -> None:
        """Begin an iteration."""
        self.device.write(self.pace, np.array([tuple(pace)], PACE))
        self._begin(0)

    def advance(self) -> None:
        """Count a written group."""
        if self.frames is not None:
            self.frames.keep()
        self._admit_newest()
        self._advance(0)

    def _admit_newest(self) -> None:
        """Give the newest group the greatest priority so far."""
        if self.prioritised:
            self._admit(0)
            for level, add_up in self._sum_newest:
                add_up(level)

    def receive(self, group: NDArray[Any]) -> None:
        """Write a group from the host."""
        self.device.copy(self.rows[self.place : self.place + self._group], group)
        self.place = (self.place + self._group) % self.capacity

    def break_off(self, which: slice) -> None:
        """Mark the newest steps of some environments as truncated, or as lost where the final frames are missing."""
        counts, copies = self.device.fetch(self.counts), self._group
        if counts[FILLED] == 0:
            return
        first = int(counts[PLACE] - copies) % self.capacity
        newest, own = self.rows[first : first + copies], np.arange(copies)[which]
        group = self.device.fetch(newest)
        own = own[group["ended"][own] == GOES_ON]
        if self.frames is not None:
            self.frames.break_off(which)
            self.lose(first + own)
            return
        group["ended"][own] = TRUNCATED
        self.device.copy(newest, group)

    def lose(self, places: NDArray[np.int64]) -> None:
        """Mark records as lost and exclude them from sampling: their next observation is missing."""
        for place in places:
            record = self.device.fetch(self.rows[place : place + 1])
            record["ended"] = LOST
            self.device.copy(self.rows[place : place + 1], record)
        if self.prioritised and len(places) > 0:
            tree = self.device.fetch(self.tree)
            tree.reshape(-1)[places] = 0.0
            self.device.store(self.tree, tree)
            for level, add_up in self._sum_all:
                add_up(level)

    def draw(self) -> None:
        """Sample a batch."""
        first, stop = self._share
        self._leave_out(first)
        self._draw(0)
        self._leave_out(self._config.effective_batch_size - stop)
        if self.prioritised:
            self.device.find_least(self.drawn.leaves, self.drawn.least)
            self._weigh(0)

    def _leave_out(self, rows: int) -> None:
        """Skip the random numbers of rows that other processes sample, where all rows share one stream."""
        if self.device.sequential:
            for _ in range(rows):
                random.bits(self._own_stream)

    def revise(self) -> None:
        """Set a batch's priorities from its errors."""
        if not self.prioritised:
            return
        self._rate(0)
        self.device.find_greatest(self.drawn.leaves, self.greatest)
        self._revise(0)
        for level in self.levels:
            self._sum_drawn(level)

    def state(self) -> dict[str, Any]:
        """Return a native buffer's state, and the random streams of a batch's rows."""
        counts = self.device.fetch(self.counts)
        state = {"memory.rows": self._written(counts), "memory.counts": counts, **self.stream_state()}
        if self.frames is not None:
            state |= named("memory", self.frames.state(counts))
        if self.prioritised:
            leaves = self.device.fetch(self.tree).reshape(-1)[: self.capacity].copy()
            state |= {"memory.priorities": leaves, "memory.greatest": self.device.fetch(self.greatest)}
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]], *, episodes_begin: bool) -> None:
        """Continue from a saved state; with `episodes_begin`, unfinished episodes are truncated."""
        counts = state["memory.counts"].copy()
        total, filled, copies = int(counts[TOTAL]), int(counts[FILLED]), self._group
        if counts[:TOTAL].tolist() != [total % self.capacity, min(total, self.capacity)] or total % copies:
            raise ValueError(
                f"the memory of the state is not one of {self.capacity} transitions: give the same buffer_size and"
                " num_envs"
            )
        if self.frames is not None:
            state = self.frames.converted(state, self.kind)
        given = state["memory.rows"]
        if len(given) != filled or given.dtype != self.kind:
            raise ValueError("memory.rows of the state are not of such an agent: load one of the same environment")
        given: NDArray[Any] = given[:]
        rows: NDArray[Any] = np.zeros(self.capacity, self.rows.dtype)
        for name in rows.dtype.names or ():
            rows[name][:filled] = given[name]
        if self.frames is not None:
            memory = {**within("memory", state), "observation": given["observation"]}
            self.frames.load(rows, counts, memory, episodes_begin=episodes_begin)
        elif episodes_begin:
            cut_off(rows, counts, copies)
        self.device.store(self.rows, rows)
        self.device.store(self.counts, counts)
        self.place = int(counts[PLACE])
        self.load_streams(state)
        if self.prioritised:
            self._load_priorities(state, rows["ended"][:filled])
        self.device.synchronise()

    def stream_state(self) -> dict[str, Any]:
        """Return the random streams of sampling."""
        state: dict[str, Any] = {"memory.rng": self._own_stream.copy()}
        return state if self.device.sequential else {**state, "learner.draws": self.device.fetch(self.streams)}

    def load_streams(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue with the random streams of a state."""
        self._own_stream[:] = state["memory.rng"].reshape(-1)[:2]
        if not self.device.sequential:
            streams = state.get("learner.draws")
            if streams is None or streams.shape != (self._batch, 2):  # a native learner has one stream
                streams = random.streams(int(self._own_stream[0]), self._batch, self._share[0])
            self.device.store(self.streams, streams)

    def _written(self, counts: NDArray[np.int64]) -> Any:
        """Return the written rows, in place; rows on a GPU are fetched piece by piece."""
        filled = int(counts[FILLED])
        if self.frames is None and isinstance(self.rows, np.ndarray):
            return self.rows[:filled]
        return StoredRows(self, counts, filled)

    def fill(self, rows: NDArray[Any]) -> None:
        """Fill the ring with these records; each gets the greatest priority so far."""
        counts = np.array([len(rows) % self.capacity, len(rows), len(rows)])
        state = {**self.state(), "memory.rows": rows, "memory.counts": counts}
        if self.prioritised:
            full = np.arange(self.capacity) < len(rows)
            state["memory.priorities"] = np.where(full, state["memory.greatest"], np.float32(0))
        self.load_state(state, episodes_begin=False)

    def _load_priorities(self, state: Mapping[str, NDArray[Any]], ended: NDArray[np.int8]) -> None:
        """Load the priorities of a state, or equal ones if it has none; lost steps get 0."""
        leaves = state.get("memory.priorities")
        if leaves is None or leaves.shape != (self.capacity,):
            leaves = (np.arange(self.capacity) < len(ended)).astype(np.float32)
        leaves = np.where(np.isin(np.arange(self.capacity), np.flatnonzero(ended == LOST)), np.float32(0), leaves)
        tree = np.zeros(self.tree.shape, np.float32)
        tree.reshape(-1)[: self.capacity] = leaves
        self.device.store(self.tree, tree)
        greatest = state.get("memory.greatest", np.array([max(leaves.max(), 1.0)], np.float32))
        self.device.store(self.greatest, greatest)
        for level, add_up in self._sum_all:
            add_up(level)


@contextmanager
def tells_of_ring(device: str, capacity: int, itemsize: int) -> Iterator[None]:
    """Convert a device's out-of-memory error to one with the ring's size and the setting to reduce."""
    try:
        yield
    except Exception as error:
        if not lacks_memory(error):
            raise
        raise DeviceMemoryError(
            f"{device} has too little memory for {capacity:,} transitions of {itemsize:,} bytes"
            f" ({capacity * itemsize / 2**30:.1f} GiB): reduce buffer_size"
        ) from error
