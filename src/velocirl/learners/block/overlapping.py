"""Learning from one rollout while the next is collected, for environments that step in Python.

Learning is compiled and holds no GIL, so a thread of Python can step environments meanwhile. What is learnt from was
then collected by the policy as it was one update earlier, which V-trace corrects.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import aligned_records
from velocirl.engine.disk.saved import named
from velocirl.learners.batch.overlap.collecting_thread import CollectingThread
from velocirl.learners.block.collector import BlockCollector
from velocirl.learners.block.rollout import BlockRollout
from velocirl.learners.task import Task

PENDING = "pending"  # before the names of the arrays of a rollout that was collected and not learnt from


class OverlappingRollout(BlockRollout):
    """Learns from a rollout while a thread of its own collects the next.

    Nothing is shared while both are at work: the collector has records and packed parameters of its own. Between two
    rollouts, what it collected is copied to the learner, and the parameters of now are packed for it. The time that is
    counted as spent on the rollout is that of waiting for it.
    """

    collector: BlockCollector

    def __init__(self, task: Task) -> None:
        self._thread = CollectingThread()
        self._collection: Future[None] | None = None  # under way, or done and not learnt from
        super().__init__(task)

    @property
    def learning_threads(self) -> int:
        """One core is for Python."""
        return max(self.task.config.threads - 1, 1)

    def drain(self) -> None:
        """Wait until nothing is under way; what a rollout raised comes with the next iteration."""
        if self._collection is not None:
            self._collection.exception()
        super().drain()

    def gauges(self) -> dict[str, float]:
        """Whether a rollout waits to be learnt from, and how long learner and collector have waited for each other."""
        return {**super().gauges(), **self._thread.gauges()}

    def state(self) -> dict[str, NDArray[Any]]:
        """That of the learner and of the collector, with the rollout that was not learnt from yet."""
        self.drain()
        pending = {} if not self._holds_rollout() else {name: array.copy() for name, array in self._pending().items()}
        return {**super().state(), **pending}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state, with its rollout where it has one of this size."""
        self.drain()
        self._collection = None
        super().load_state(state)
        own = self._pending()
        if all(name in state and state[name].shape == array.shape for name, array in own.items()):
            for name, array in own.items():
                array[...] = state[name]
            self._collection = Future()
            self._collection.set_result(None)

    def _make_collector(self) -> BlockCollector:
        return BlockCollector(self.task, self.networks, alone=True)

    def _learnt_records(self) -> NDArray[Any]:
        return aligned_records(self.collector.records.shape, self.collector.records.dtype)

    def _collect(self) -> None:
        """Wait for the rollout that is under way; the very first is begun here."""
        collection = self._collection or self._begin()
        error = self._thread.wait(collection)  # where this waiting is interrupted, the rollout is still under way
        self._collection = None
        if error is not None:
            raise error

    def _hand_over(self) -> None:
        """Give the learner a copy of the rollout, and begin the next with the parameters of now."""
        self.records[...] = self.collector.records
        self._begin()

    def _begin(self) -> Future[None]:
        self.collector.refresh()
        self._look_through()
        self._collection = self._thread.begin(self.collector.collect)
        return self._collection

    def _holds_rollout(self) -> bool:
        """Whether there is a rollout to learn from; one that failed is not, nor one with a fault."""
        collection = self._collection
        return collection is not None and collection.exception() is None and not self.collector.log.fault.any()

    def _pending(self) -> dict[str, NDArray[Any]]:
        """A rollout as a file can hold it; the arrays themselves."""
        collector = self.collector
        arrays = {
            "records": _as_bytes(collector.records),
            "ends": collector.log.ends,
            "returns": collector.log.returns,
            "lengths": collector.log.lengths,
            "observation_sums": collector.observation_sums,
            "reward_sums": collector.reward_sums,
            **({"reported": collector.reported} if len(collector.reported) else {}),
        }
        return named(PENDING, arrays)


def _as_bytes(records: NDArray[Any]) -> NDArray[np.uint8]:
    """Records with their bytes in a dimension of their own; the memory is the same."""
    return records.view(np.uint8).reshape(*records.shape, records.dtype.itemsize)
