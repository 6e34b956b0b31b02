"""All-reduce over the ranks of one machine in shared memory: no messages, and no thread to wake up.

A rank writes its part into its own slot, waits until all have done so, and adds up the slots in rank order. All ranks
therefore get the same bits. There are two rows of slots, used in turn: before a rank writes into a row again, it has
synchronized with all others since they read that row. Arrays larger than a slot are summed piece by piece.

The memory has no name that could be left behind (see `open_memory`): the first rank of a machine creates it, and the
others open it as a file of that process.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import cpu_translator
from velocirl.engine.compiler.registers import mailbox_read, mailbox_write
from velocirl.engine.compiler.units import bind_unit
from velocirl.engine.targets.threads import SPACING, SPINS, wait_a_moment
from velocirl.scale.ranks import LostRankError, Ranks
from velocirl.vector.host.copies import Carver
from velocirl.vector.host.workers import open_memory

SLOT = 2**20  # bytes of a part
LOOKS = SPINS + 1_000  # after which a waiting rank checks that the others are alive: some 50 ms
LARGE = 2**17  # bytes that one rank reads of others at once; above that, each rank adds up a slice for all
NOTHING = -1, 0


class Peer(NamedTuple):
    """Rank on this machine."""

    rank: int
    process: int


class Machine(NamedTuple):
    """Machine of a rank."""

    sums: SharedSums | None  # None if it is the only rank there
    firsts: list[int]  # the first rank of each machine


class SharedSums:
    """All-reduce over the ranks of a machine, as seen by one of them."""

    def __init__(self, memory: Any, place: int, peers: list[Peer], patience: float) -> None:
        """Set up the rank at index `place` of `peers`; the memory must hold the bytes that `_carve` takes."""
        self._place, self._peers, self._size, self._patience = place, peers, len(peers), patience
        _, meeting, self._slots = _carve(Carver(memory), self._size)
        self._come = bind_unit(come, (meeting,), cpu_translator("sums", double=True), disjoint=False)
        self._typed: dict[np.dtype[Any], NDArray[Any]] = {}
        self._meetings, self._pieces = 0, 0

    def sum(self, array: NDArray[Any]) -> None:
        """Add up a contiguous array over the ranks, in place."""
        for piece, parts in self._parts_of(array):
            if (self._size - 2) * piece.nbytes > LARGE:
                self._add_slices(parts, piece)
            else:
                _add(parts, piece)

    def spread(self, array: NDArray[Any]) -> None:
        """Copy the array of the first rank on this machine to the others."""
        for piece, parts in self._parts_of(array):
            piece[:] = parts[0]

    def _parts_of(self, array: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Iterate over pieces of an array, each with all ranks' parts of it: (ranks, numbers)."""
        if array.dtype not in self._typed:
            self._typed[array.dtype] = self._slots.view(array.dtype)
        flat, slots = array.ravel("K"), self._typed[array.dtype]
        for first in range(0, flat.size, slots.shape[2]):
            piece = flat[first : first + slots.shape[2]]
            parts = slots[self._pieces % 2, :, : piece.size]
            self._pieces += 1
            parts[self._place] = piece
            self._meet()
            yield piece, parts

    def _add_slices(self, parts: NDArray[Any], piece: NDArray[Any]) -> None:
        """Add up this rank's slice, which no other rank reads yet, into its slot; then collect all slices."""
        bounds = [piece.size * place // self._size for place in range(self._size + 1)]
        own = slice(bounds[self._place], bounds[self._place + 1])
        _add(parts[:, own], piece[own])
        parts[self._place, own] = piece[own]
        self._meet()
        for part, first, stop in zip(parts, bounds, bounds[1:], strict=False):
            piece[first:stop] = part[first:stop]

    def _meet(self) -> None:
        """Wait for the other ranks, as long as they are alive."""
        self._meetings += 1
        began = time.monotonic()
        while (place := self._come(self._place, LOOKS, self._meetings)) < self._size:
            missing, who = self._peers[place], f"rank {self._peers[self._place].rank}"
            # It may have arrived, and ended since.
            if _has_ended(missing.process) and self._come(self._place, 0, self._meetings) == place:
                raise LostRankError(f"{who} has lost rank {missing.rank} (process {missing.process}), which ended")
            if time.monotonic() - began > self._patience:
                raise LostRankError(f"{who} has waited {self._patience:.0f} s for rank {missing.rank}")


def come(arguments, place, looks, count):
    """Arrive at synchronization `count` and wait for all. Returns a missing rank after `looks` checks, else `size`."""
    (meeting,) = arguments
    mailbox_write(meeting, place * SPACING, count)
    size = meeting.size // SPACING
    looked = 0
    for other in range(size):
        while mailbox_read(meeting, other * SPACING) < count:
            looked += 1
            if looked > looks:
                return other
            wait_a_moment(looked)
    return size


def share_machines(ranks: Ranks, local_rank: int, patience: float) -> Machine | None:
    """Share memory with the other ranks of this machine, as numbered by the launcher.

    All ranks call it at once. Returns None on all ranks if each has its own machine, or if some cannot share memory.
    """
    places = _told(ranks, ranks.rank - local_rank, os.getpid())
    machine = places[ranks.rank, 0]
    peers = [Peer(rank, int(process)) for rank, (other, process) in enumerate(places) if other == machine]
    firsts = np.unique(places[:, 0], return_index=True)[1].tolist()
    if len(firsts) == ranks.size:
        return None
    with contextlib.ExitStack() as stack:
        made = _make(len(peers), stack) if ranks.rank == peers[0].rank and len(peers) > 1 else NOTHING
        offers, memory = _told(ranks, *made), None
        if len(peers) > 1:
            descriptor, token = offers[peers[0].rank].tolist()
            with contextlib.suppress(OSError):
                memory = _open(peers[0].process, descriptor, token, len(peers))
        missing = _told(ranks, int(len(peers) > 1 and memory is None))
    if missing.any():
        return None
    place = [peer.rank for peer in peers].index(ranks.rank)
    return Machine(None if memory is None else SharedSums(memory, place, peers, patience), sorted(firsts))


def _told(ranks: Ranks, *words: int) -> NDArray[np.int64]:
    """Gather `words` of every rank: (ranks, words)."""
    told = np.zeros((ranks.size, len(words)), np.int64)
    told[ranks.rank] = words
    ranks.sum(told)
    return told


def _make(size: int, stack: contextlib.ExitStack) -> tuple[int, int]:
    """Create memory for `size` ranks while the context lasts. Returns its descriptor, and a token to identify it."""
    count, token = _bytes(size), secrets.randbits(62)
    try:
        descriptor = open_memory()
        stack.callback(os.close, descriptor)
        os.posix_fallocate(descriptor, 0, count)  # now: running out of memory at a later write would crash
        _carve(Carver(mmap.mmap(descriptor, count)), size)[0][0] = token
    except (OSError, AttributeError):  # AttributeError: the system has no such call
        return NOTHING
    return descriptor, token


def _open(process: int, descriptor: int, token: int, size: int) -> mmap.mmap | None:
    """Map the memory of a process of this job; None if that process is not on this machine."""
    path = Path(f"/proc/{process}/fd/{descriptor}")
    if not path.readlink().name.startswith("memfd:"):
        return None
    handle = os.open(path, os.O_RDWR)
    try:
        memory = mmap.mmap(handle, _bytes(size)) if os.fstat(handle).st_size == _bytes(size) else None
    finally:
        os.close(handle)
    return memory if memory is not None and _carve(Carver(memory), size)[0][0] == token else None


def _carve(carve: Carver, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Return the shared arrays of `size` ranks: a token, each rank's synchronization count, and slots."""
    return carve((1,), np.int64), carve((size * SPACING,), np.int64), carve((2, size, SLOT), np.uint8)


def _bytes(size: int) -> int:
    counter = Carver()
    _carve(counter, size)
    return counter.size


def _add(parts: NDArray[Any], into: NDArray[Any]) -> None:
    """Add up parts in rank order."""
    np.add(parts[0], parts[1], out=into)
    for part in parts[2:]:
        np.add(into, part, out=into)


def _has_ended(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in (b"Z", b"X")  # ended, but not yet reaped
