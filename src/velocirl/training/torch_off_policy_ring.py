"""The memory of off-policy learning on a device: a ring of records, the drawing of batches, and priorities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.buffers.n_step import cut_off
from velocirl.buffers.replay import FILLED, MOST_ROWS, PLACE
from velocirl.buffers.sum_tree import CHILDREN, allocate_tree
from velocirl.engine import random
from velocirl.training import mapped_replaying as mapped
from velocirl.training.mapped_replaying import CLOCK, NUMBERS, PACE, RUN_STEP, Batch, Clock, Extent, Ring
from velocirl.learners.pace import Pace
from velocirl.training.torch_device import Device
from velocirl.training.torch_memory import SAID, DeviceMemoryError


class Sizes(NamedTuple):
    """How much is remembered, and what is drawn of it."""

    buffer_size: int
    copies: int
    batch_size: int
    n_step: int
    gamma: float
    priority: str  # none or proportional
    alpha: float  # of priorities
    epsilon: float = 1e-6  # is added to every priority, so that nothing is never drawn


class TorchClock:
    """The counters of a run on a device, and the pace of its iteration."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.tensors: dict[str, torch.Tensor] = {
            "counts": device.zeros(CLOCK, dtype=np.int64),
            "numbers": device.zeros(NUMBERS, dtype=np.float64),
            "pace": device.zeros(len(PACE.names or ()), dtype=np.int64),
        }
        arrays = {name: device.array(tensor) for name, tensor in self.tensors.items()}
        self.arrays = Clock(arrays["counts"], arrays["numbers"], arrays["pace"].view(PACE))
        mapper = device.mapper(device.learning_translator("learner"))
        self._begin = mapper.bind(mapped.begin, 1, self.arrays)

    def begin(self, pace: Pace, step: int) -> None:
        """At the beginning of an iteration, when the run has taken so many steps."""
        written = np.array([tuple(pace)], PACE).view(np.int64)
        # From memory that is not pinned: it is read before this returns, and nobody waits for what is under way.
        self.tensors["pace"].copy_(torch.from_numpy(written), non_blocking=True)
        self.tensors["counts"][RUN_STEP].fill_(step)
        self._begin()


class TorchRing:
    """Records of single steps in groups, one for each step of the fleet."""

    def __init__(
        self, device: Device, kind: np.dtype[Any], sizes: Sizes, inputs: int, clock: TorchClock, seed: int
    ) -> None:
        self.device, self.sizes = device, sizes
        self.capacity = max(sizes.buffer_size // sizes.copies, 1) * sizes.copies
        if self.capacity > MOST_ROWS:
            raise ValueError(f"buffer_size must be at most {MOST_ROWS:,}, got {sizes.buffer_size:,}")
        self.prioritised = sizes.priority == "proportional"
        batch, zeros = sizes.batch_size, device.zeros
        with tells_of_ring(device.name, self.capacity, kind.itemsize):
            self.rows = device.records((self.capacity,), kind)
        tree, starts = allocate_tree(self.capacity if self.prioritised else 1)
        self._starts = starts
        self.tree = zeros(*tree.shape)
        self._counts = zeros(3, dtype=np.int64)
        self.counts = device.array(self._counts)
        self.greatest = zeros(1) + 1
        self.tensors: dict[str, torch.Tensor] = {
            "places": zeros(batch, dtype=np.int64),
            "lasts": zeros(batch, dtype=np.int64),
            "rewards": zeros(batch),
            "discounts": zeros(batch),
            "leaves": zeros(batch),
            "least": zeros(1),
            "errors": zeros(batch),
            "inputs": zeros(batch, inputs),
            "following": zeros(batch, inputs),
        }
        self.streams = device.put(random.streams(seed, batch))  # one for each row of a batch
        self._own_stream = random.streams(seed, 1)[0]  # a native learner would draw by it
        self.batch = Batch(**{name: device.array(tensor) for name, tensor in self.tensors.items()})
        self.arrays = Ring(
            self.rows, self.counts, device.array(self.tree), device.put(starts), device.array(self.greatest)
        )
        self.weigh: Callable[..., Any] = mapped.weight_by_share if self.prioritised else mapped.weight_alike
        self._bind(clock)

    def _bind(self, clock: TorchClock) -> None:
        device, sizes, ring, batch = self.device, self.sizes, self.arrays, self.batch
        mapper = device.mapper(device.learning_translator("learner"))
        self.rng = mapper.rows(self.streams)
        extent = Extent(
            sizes.copies, sizes.batch_size, sizes.n_step, float(sizes.gamma), float(sizes.alpha), float(sizes.epsilon)
        )
        bind, rows = mapper.bind, sizes.batch_size
        self._advance = bind(mapped.advance, 1, ring, clock.arrays, extent)
        self._draw = bind(
            mapped.draw_by_share if self.prioritised else mapped.draw, rows, ring, batch, self.rng, extent
        )
        self._gather = bind(mapped.gather, rows * self.tensors["inputs"].shape[1], ring, batch)
        if not self.prioritised:
            return
        one, levels = np.int64(1), range(1, len(self._starts))
        self._admit = bind(mapped.admit, sizes.copies, ring)
        self._rate = bind(mapped.rate, rows, batch, clock.arrays, extent)
        self._revise = bind(mapped.revise, rows, ring, batch, clock.arrays)
        self._sum_drawn = bind(mapped.sum_drawn, rows, ring, batch, numbers=(one,))
        # Nodes that a group may have above it, and all nodes, of each level.
        near = [(np.int64(level), sizes.copies // CHILDREN**level + 2) for level in levels]
        every = [(np.int64(level), -(-self.capacity // CHILDREN**level)) for level in levels]
        self._sum_newest = [
            (level, bind(mapped.sum_newest, count, ring, extent, numbers=(one,))) for level, count in near
        ]
        self._sum_all = [(level, bind(mapped.sum_all, count, ring, numbers=(one,))) for level, count in every]

    def advance(self) -> None:
        """After a group was written."""
        if self.prioritised:
            self._admit()
            for level, add_up in self._sum_newest:
                add_up(level)
        self._advance()

    def receive(self, group: NDArray[Any]) -> None:
        """Write a group that comes from the host."""
        place = int(self._counts[PLACE])
        self.device.copy(self.rows[place : place + len(group)], group)

    def draw(self) -> None:
        """Draw a batch, and lay out what the networks read of it."""
        self._draw()
        if self.prioritised:
            torch.amin(self.tensors["leaves"], 0, keepdim=True, out=self.tensors["least"])
        self._gather()

    def revise(self) -> None:
        """Let the errors of a batch be its new priorities."""
        if not self.prioritised:
            return
        self._rate()
        torch.maximum(self.greatest, self.tensors["leaves"].amax(0, keepdim=True), out=self.greatest)
        self._revise()
        for level in range(1, len(self._starts)):
            self._sum_drawn(np.int64(level))

    def state(self) -> dict[str, Any]:
        """What a native buffer's state has, and the streams of a batch's rows."""
        counts = self._counts.cpu().numpy().copy()
        state = {
            "memory.rows": self._written(int(counts[FILLED])),
            "memory.counts": counts,
            "memory.rng": self._own_stream.copy(),
            "learner.draws": self.device.fetch(self.streams),
        }
        if self.prioritised:
            leaves = self.tree.view(-1)[: self.capacity].cpu().numpy().copy()
            state |= {"memory.priorities": leaves, "memory.greatest": self.greatest.cpu().numpy().copy()}
        return state

    def load_state(self, state: Mapping[str, NDArray[Any]], *, episodes_begin: bool) -> None:
        """Go on from a state; where new episodes begin, those of before are cut off."""
        counts, rows = state["memory.counts"].copy(), np.zeros(self.capacity, self.rows.dtype)
        if len(state["memory.rows"]) != counts[FILLED] or state["memory.rows"].dtype != rows.dtype:
            raise ValueError("memory.rows of the state are not of such an agent: load one of the same environment")
        if counts[FILLED] > self.capacity or (counts[FILLED] < self.capacity) != (counts[PLACE] == counts[FILLED]):
            raise ValueError(
                f"the memory of the state is not one of {self.capacity} transitions: give the same buffer_size and"
                " num_envs"
            )
        rows[: counts[FILLED]] = state["memory.rows"][:]
        if episodes_begin:
            cut_off(rows, counts, self.sizes.copies)
        self.device.store(self.rows, rows)
        self._counts.copy_(torch.from_numpy(counts))
        self._own_stream = state["memory.rng"].reshape(-1)[:2].copy()
        streams = state.get("learner.draws")
        if streams is None or streams.shape != (self.sizes.batch_size, 2):  # a native learner has one stream
            streams = random.streams(int(self._own_stream[0]), self.sizes.batch_size)
        self.device.store(self.streams, streams)
        if self.prioritised:
            self._load_priorities(state, int(counts[FILLED]))
        self.device.synchronise()

    def _written(self, filled: int) -> Any:
        """The rows that are written, where they lie; those of a GPU come to this machine piece by piece."""
        return self.rows[:filled] if self.device.name == "cpu" else DeviceRows(self.device, self.rows, filled)

    def _load_priorities(self, state: Mapping[str, NDArray[Any]], filled: int) -> None:
        """Those of the state, or where it has none, all alike."""
        leaves = state.get("memory.priorities")
        if leaves is None or leaves.shape != (self.capacity,):
            leaves = (np.arange(self.capacity) < filled).astype(np.float32)
        self.tree.zero_()
        self.tree.view(-1)[: self.capacity].copy_(torch.from_numpy(np.ascontiguousarray(leaves)))
        greatest = state.get("memory.greatest", np.array([max(leaves.max(), 1.0)], np.float32))
        self.greatest.copy_(torch.from_numpy(greatest))
        self.device.synchronise()
        for level, add_up in self._sum_all:
            add_up(level)


class DeviceRows:
    """The first rows of a ring on a device, of which stretches can be had as arrays; see `buffers.segments.Rows`."""

    def __init__(self, device: Device, rows: Any, filled: int) -> None:
        self._device, self._rows, self._filled = device, rows, filled
        self.dtype: np.dtype[Any] = rows.dtype

    def __len__(self) -> int:
        return self._filled

    def __getitem__(self, stretch: slice, /) -> NDArray[Any]:
        first, stop, _ = stretch.indices(self._filled)
        return self._device.fetch(self._rows[first:stop]) if stop > first else np.zeros(0, self.dtype)


@contextmanager
def tells_of_ring(device: str, capacity: int, itemsize: int) -> Iterator[None]:
    """Turn an error of a device without memory into one that names the size of the ring, and what to reduce."""
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__} {error}".lower()  # torch and numba-cuda have errors of their own for it
        if not any(said in text for said in SAID):
            raise
        raise DeviceMemoryError(
            f"{device} has too little memory for {capacity:,} transitions of {itemsize:,} bytes"
            f" ({capacity * itemsize / 2**30:.1f} GiB): reduce buffer_size"
        ) from error
