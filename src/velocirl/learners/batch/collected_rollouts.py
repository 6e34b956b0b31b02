"""Rollouts that collectors took, as a learner of whole batches takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.batch.collector import Recorded
from velocirl.learners.collectors.collected_rollouts import CollectedRollouts
from velocirl.learners.collectors.content import seeing, to_bytes
from velocirl.learners.task import Task


class BatchCollected:
    """What collectors bring, in the place of a collector in this process; it lies on the host."""

    in_kernels, on_host = False, True
    envs = fleet = None  # collectors have them

    def __init__(self, task: Task, device: Any, network: Any, updates: Callable[[], int]) -> None:
        here, inputs = device.on_host(), task.encoding.inputs
        self.network = network
        self.recorded = Recorded(task, here, 1, network.state_size)
        self.centre, self.inverse_scale = here.zeros(inputs), here.zeros(inputs)
        self.collected = CollectedRollouts(task, self.recorded.columns(), self._weights, updates)
        self.collected.start()

    def collect(self) -> None:
        """Take rollouts of all copies."""
        self.collected.collect()

    def state(self) -> dict[str, NDArray[Any]]:
        """The policy's random streams, the discounted returns and what the network remembers.

        Rollouts that wait in rings are not saved.
        """
        self.collected.settle()
        rng, kept = self.collected.streams
        memory = {"policy.state": kept[:, 1:]} if self.network.state_size else {}
        return {"policy.rng": rng, "policy.discounted": kept[:, 0], **memory}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on with new episodes, whose seeds come from the policy's streams."""
        self.collected.begin_anew(state["policy.rng"])

    def _weights(self) -> NDArray[np.uint8]:
        network = self.network
        buffers = network.buffers() if network.takes_statistics else {}
        return to_bytes(network.to_host(), {**buffers, **seeing(self)})
