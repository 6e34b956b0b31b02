"""The machine that collects while it learns, for environments that step in Python.

Learning is compiled and holds no GIL, so a thread of Python can step environments meanwhile. What is learnt from was
then collected by the policy as it was one update earlier, which V-trace corrects.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.batch.collecting_thread import CollectingThread
from velocirl.training.collecting import ENDED, EPISODE, FAULT, Journal
from velocirl.training.native_machine import NativeMachine

PENDING = "pending."  # before the names of the arrays of a rollout that was collected and not learnt from


class OverlappingMachine(NativeMachine):
    """Learns from a rollout while a thread of its own collects the next.

    Nothing is shared while both are at work: the collector has a journal and workspaces of its own. Between two
    rollouts, what it collected is copied to the learner, and the parameters of now are packed for it. The time that is
    counted as spent on the rollout is that of waiting for it.
    """

    _collection: Future[None] | None = None  # under way, or done and not learnt from

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._thread = CollectingThread()

    def drain(self) -> None:
        """Wait until nothing is under way; what a rollout raised comes with the next iteration."""
        if self._collection is not None:
            self._collection.exception()
        super().drain()

    def gauges(self) -> dict[str, float]:
        """Whether a rollout waits to be learnt from, and how long learner and collector have waited for each other."""
        return self._thread.gauges()

    def state(self) -> dict[str, NDArray[Any]]:
        """That of the learner and of the collector, with the rollout that was not learnt from yet."""
        self.drain()
        return {**super().state(), **(self._pending() if self._holds_rollout() else {})}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state, with its rollout where it has one of this size."""
        self.drain()
        self._collection = None
        super().load_state(state)
        samples = state.get(f"{PENDING}samples")
        if samples is not None and samples.shape == _as_bytes(self._journal.samples).shape:
            self._load_pending(state)
            self._collection = Future()
            self._collection.set_result(None)

    def _collect(self) -> None:
        """Wait for the rollout that is under way; the very first is begun here."""
        collection = self._collection or self._begin()
        error = self._thread.wait(collection)  # where this waiting is interrupted, the rollout is still under way
        self._collection = None
        if error is not None:
            raise error

    def _hand_over(self) -> None:
        """Give the learner a copy of the rollout, and begin the next with the parameters of now."""
        first = 0
        for own in self.learner.journals:
            rows = slice(first, first + len(own.samples))
            own.samples[:], own.last_value[:] = self._journal.samples[rows], self._journal.last_value[rows]
            first += len(own.samples)
        self._begin()

    def _begin(self) -> Future[None]:
        self.learner.pack(self.collector.works)
        self._clear_journals()
        self._collection = self._thread.begin(self.collector.collect, self.eyes, self._gamma)
        return self._collection

    @property
    def _journal(self) -> Journal:
        (journal,) = self.collector.journals
        return journal

    def _holds_rollout(self) -> bool:
        """Whether there is a rollout to learn from; one that failed is not, nor one with a fault."""
        collection = self._collection
        return collection is not None and collection.exception() is None and not self._journal.counts[FAULT]

    def _pending(self) -> dict[str, NDArray[Any]]:
        journal = self._journal
        arrays = {
            "samples": _as_bytes(journal.samples),
            "last_value": journal.last_value,
            "episodes": _as_bytes(journal.episodes[: journal.counts[ENDED]]),
            "observation_sums": journal.observation_sums,
            "discounted_sums": journal.discounted_sums,
        }
        return {f"{PENDING}{name}": array.copy() for name, array in arrays.items()}

    def _load_pending(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._clear_journals()
        journal = self._journal
        _as_bytes(journal.samples)[:] = state[f"{PENDING}samples"]
        for name in ("last_value", "observation_sums", "discounted_sums"):
            getattr(journal, name)[:] = state[f"{PENDING}{name}"]
        episodes = np.ascontiguousarray(state[f"{PENDING}episodes"]).view(EPISODE)[:, 0]
        journal.episodes[: len(episodes)] = episodes
        journal.counts[ENDED] = len(episodes)


def _as_bytes(records: NDArray[Any]) -> NDArray[np.uint8]:
    """Records as a file can hold them, with their bytes in a dimension of their own; the memory is the same."""
    return records.view(np.uint8).reshape(*records.shape, records.dtype.itemsize)
