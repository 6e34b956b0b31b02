"""Acting over whole rollouts in a collector process, by the rollout collector of in-process learners."""

from __future__ import annotations

from typing import Any

import numpy as np

from velocirl.collect.collectors.content import from_bytes, seeing
from velocirl.collect.collectors.ring import Ring
from velocirl.program.pace import PACE
from velocirl.program.task import Task


class RolloutActing:
    """Collector of rollouts on one device, each into the ring's current slot."""

    def __init__(self, task: Task, ring: Ring, device: Any) -> None:
        self._network = device.make_acting(task)
        collector = device.make_collector(task, self._network, [task.seeds])
        self._ring, self._device, self._collect = ring, device, collector.collect
        self.pace = np.zeros(1, PACE)  # unused here
        self.host, self.envs = collector.host, collector.envs
        self._columns = collector.recorded.columns()
        self._seeing = {name: np.asarray(one) for name, one in seeing(collector).items()}
        self._streams = np.asarray(collector.rng)
        self._kept = [np.asarray(one).reshape(ring.copies, -1) for one in (collector.discounted, collector.memory)]

    def take(self, content: Any) -> None:
        """Load the weights to act with from now on, and the normalizer published with them."""
        network = self._network
        own = network.buffers() if network.takes_statistics else {}
        parameters, found = from_bytes(content, network.num_parameters, {**own, **self._seeing})
        network.parameters_from(parameters)
        if own:
            network.load_buffers({name: found[name] for name in own})
        for name, array in self._seeing.items():
            array[...] = found[name]

    def step(self, step: int) -> None:  # noqa: ARG002 - nothing of a rollout depends on it
        """Collect one rollout of all environments."""
        ring, widths = self._ring, np.cumsum([one.shape[1] for one in self._kept])
        self._streams[...] = ring.rng
        for mine, given in zip(self._kept, np.split(ring.kept, widths[:-1], 1), strict=True):
            mine[...] = given
        with self._device.at_work():
            self._collect()
        self._columns.write(ring.rows[ring.round(ring.slot)])
        ring.rng[...], ring.kept[...] = self._streams, np.concatenate(self._kept, 1)
