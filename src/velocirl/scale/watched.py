"""Ranks with hang detection during training."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from numpy.typing import NDArray

from velocirl.scale.launching import Launch
from velocirl.scale.ranks import Ranks, ranks_of
from velocirl.scale.watching import EXCUSED, WAITING, WORKING, Channel, Watch, Watchman, limit_from


class WatchedRanks:
    """Ranks that record when they wait for each other; see `ranks.Ranks`."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.rank, self.size = ranks.rank, ranks.size
        self._watch = Watch(ranks.rank, ranks.size, limit_from())
        self._channel: Channel | None = None
        self._names: list[str] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Detect hanging ranks while this context lasts; all ranks enter it."""
        if self._channel is None:
            own = f"process {os.getpid()} on {platform.node()}"
            told = b"\n".join(self._ranks.gather(own.encode()))
            self._names = self._ranks.broadcast(told if self.rank == 0 else None).decode().split("\n")
            self._channel = self._ranks.open_channel()
        if self._channel is None:
            yield
            return
        self._watch.begin()
        man = Watchman(self._watch, self._channel, self._names, self._ranks.abort)
        man.start()
        try:
            yield
        finally:
            man.stop()

    def work(self) -> None:
        """Begin an iteration: a rank that does not return in time hangs."""
        self._watch.state = WORKING

    def rest(self) -> None:
        """End an iteration: this rank is exempt until the next one."""
        self._watch.state = EXCUSED

    def sum(self, array: NDArray[Any]) -> None:
        """See `ranks.Ranks`."""
        self._meet(self._ranks.sum, array)

    def broadcast(self, data: bytes | None) -> bytes:
        """See `ranks.Ranks`."""
        return self._meet(self._ranks.broadcast, data)

    def gather(self, data: bytes) -> list[bytes]:
        """See `ranks.Ranks`."""
        return self._meet(self._ranks.gather, data)

    def _meet(self, call: Callable[[Any], Any], given: Any) -> Any:
        """Run a collective call, marking this rank as waiting."""
        watch, before = self._watch, self._watch.state
        watch.state = WAITING
        try:
            return call(given)
        finally:
            watch.meetings += 1
            watch.state = before

    def assemble(self, seconds: float) -> None:
        """See `ranks.Ranks`."""
        self._ranks.assemble(seconds)

    def open_channel(self) -> Channel | None:
        """See `ranks.Ranks`."""
        return self._ranks.open_channel()

    def abort(self, code: int) -> None:
        """See `ranks.Ranks`."""
        self._ranks.abort(code)


@cache
def watched_ranks(launch: Launch) -> WatchedRanks:
    """Return the ranks of a job, with hang detection."""
    return WatchedRanks(ranks_of(launch))
