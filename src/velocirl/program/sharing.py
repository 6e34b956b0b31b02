"""Sharding of a learner's arrays over processes: merge the parts into one state, and split such a state.

The merged state is the state of a single process, whatever the number of processes was. A ring has a record for each
environment in turn; each process keeps the records of its own environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.program.reducing import Share, parts_of
from velocirl.program.saved import BY_COPY, BY_RING, COUNTS, DRAWS, TRAINED

MESSAGE = 2**26  # bytes of rows sent together


class Sharing(NamedTuple):
    """Ranges of numbered items, one range per process, in order of rank."""

    copies: Sequence[Share]  # environments; empty for offline training
    streams: Sequence[Share]  # random streams that shuffle minibatches, or batch rows

    def is_shared_out(self, name: str) -> bool:
        """Return whether each process holds its own part of an array."""
        return name in (TRAINED, DRAWS, COUNTS, *BY_RING) or name.startswith(BY_COPY)

    def own(self, state: Mapping[str, Any], rank: int) -> dict[str, Any]:
        """Return one process's part of a state."""
        own = dict(state)
        first, stop = self.streams[rank]
        # Streams saved with another number of threads or another batch size are of no use.
        for name in (TRAINED, *([DRAWS] if DRAWS in state else [])):
            fits = len(state[name]) == self.streams[-1][1]
            own[name] = state[name][first:stop] if fits else state[name][:0]
        if not self.copies:
            return own
        (first, stop), copies = self.copies[rank], self.copies[-1][1]
        for name, array in state.items():
            if name.startswith(BY_COPY):
                own[name] = array[first:stop]
            elif name in BY_RING:
                own[name] = self.of_ring(array, rank)
            elif name == COUNTS:
                own[name] = array // copies * (stop - first)
        return own

    def of_ring(self, rows: NDArray[Any], rank: int) -> NDArray[Any]:
        """Return one process's records of a ring, or of a segment; a ring has one for each environment in turn."""
        first, stop = self.copies[rank]
        return np.ascontiguousarray(rows.reshape(-1, self.copies[-1][1])[:, first:stop]).reshape(-1)

    def join(self, parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        """Merge the sharded arrays of all processes."""
        return {name: self._joined(name, [one[name] for one in parts]) for name in parts[0]}

    def _joined(self, name: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        if name in BY_RING:
            return self.interleaved(parts)
        if name == COUNTS:
            first, stop = self.copies[0]
            return parts[0] // (stop - first) * self.copies[-1][1]
        return one_after_the_other(parts)

    def interleaved(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Merge segments of all processes' rings into one segment; each has the same number of steps."""
        first, stop = self.copies[0]
        whole = np.empty((len(parts[0]) // (stop - first), self.copies[-1][1]), parts[0].dtype)
        for (first, stop), part in zip(self.copies, parts, strict=True):
            whole[:, first:stop] = part.reshape(-1, stop - first)
        return whole.reshape(-1)


def sharing_of_rollouts(copies: int, threads: int, size: int) -> Sharing:
    """Return the sharding of on-policy training, with `threads` threads per process."""
    parts = parts_of(copies, threads, size)
    threads_of = [(one.first_thread, one.first_thread + len(one.shares)) for one in parts]
    return Sharing([(one.first, one.first + one.copies) for one in parts], threads_of)


def sharing_of_memory(copies: int, batch: int, size: int) -> Sharing:
    """Return the sharding of off-policy training: a process's part of a batch is proportional to its environments."""
    shares = [(one.first, one.first + one.copies) for one in parts_of(copies, 1, size)]
    return Sharing(shares, [(batch * first // copies, batch * stop // copies) for first, stop in shares])


def sharing_of_data(batch: int, size: int) -> Sharing:
    """Return the sharding of offline training."""
    return Sharing([], even_shares(batch, size))


def even_shares(count: int, size: int) -> list[Share]:
    """Split `count` items into `size` ranges, as evenly as possible."""
    return [(count * rank // size, count * (rank + 1) // size) for rank in range(size)]


def one_after_the_other(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays; unlike `np.concatenate`, keep the layout of record types unpacked."""
    whole = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    first = 0
    for part in parts:
        whole[first : first + len(part)] = part
        first += len(part)
    return whole


def pieces(first: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of steps of `size` bytes each; the steps of a range are sent together."""
    some = max(MESSAGE // size, 1)
    for begin in range(first, stop, some):
        yield begin, min(begin + some, stop)


class RowsOfAll:
    """Rows of a replay buffer sharded over ranks, fetched piece by piece (see `buffers.segments.Rows`)."""

    def __init__(
        self, fetch: Callable[[int, int], NDArray[Any]], copies: int, dtype: np.dtype[Any], length: int
    ) -> None:
        """Wrap `fetch`, which returns the rows of a range of steps for all environments."""
        self._fetch, self._copies, self.dtype, self._length = fetch, copies, dtype, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, stretch: slice) -> NDArray[Any]:
        first, stop, _ = stretch.indices(self._length)
        rows, copies = np.zeros(max(stop - first, 0), self.dtype), self._copies
        for begin, end in pieces(first // copies, -(-stop // copies), copies * self.dtype.itemsize):
            some, at = self._fetch(begin, end), begin * copies
            low, high = max(first, at), min(stop, end * copies)
            if len(some):  # empty on ranks that only send
                rows[low - first : high - first] = some[low - at : high - at]
        return rows
