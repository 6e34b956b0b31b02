"""How a collector acts and steps whole rollouts: by the collectors of learners that collect by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from velocirl.engine.targets.team import Team
from velocirl.learners.batch.collector import BatchCollector
from velocirl.learners.block.collector import BlockCollector
from velocirl.learners.block.networks import BlockNetworks
from velocirl.learners.collectors.content import from_bytes, seeing
from velocirl.learners.collectors.ring import Ring
from velocirl.learners.pace import PACE
from velocirl.learners.task import Task
from velocirl.optim.optimisers import optimiser_from


class RolloutActing:
    """Collects rollouts of a ring's copies, each into the ring's own slot."""

    def __init__(
        self, ring: Ring, collector: Any, collect: Callable[[], None], load: Callable[..., Mapping[str, Any]]
    ) -> None:
        """`load(content, buffers)` takes weights from bytes, and gives what the buffers behind them hold."""
        self._ring, self._collect, self._load = ring, collect, load
        self.pace = np.zeros(1, PACE)  # has no meaning here
        self.host, self.envs = collector.host, collector.envs
        self._columns = collector.columns()
        self._seeing = {name: np.asarray(one) for name, one in seeing(collector).items()}
        self._streams, *kept = (np.asarray(one) for one in collector.streams())
        self._kept = [one.reshape(ring.copies, -1) for one in kept]

    def take(self, content: Any) -> None:
        """Act with these weights from now on, and see as the normaliser of then says."""
        for name, array in self._load(content, self._seeing).items():
            self._seeing[name][...] = array

    def step(self, step: int) -> None:  # noqa: ARG002 - nothing of a rollout depends on it
        """A rollout of all copies."""
        ring, widths = self._ring, np.cumsum([one.shape[1] for one in self._kept])
        self._streams[...] = ring.rng
        for mine, given in zip(self._kept, np.split(ring.kept, widths[:-1], 1), strict=True):
            mine[...] = given
        self._collect()
        self._columns.write(ring.rows[ring.round(ring.slot)])
        ring.rng[...], ring.kept[...] = self._streams, np.concatenate(self._kept, 1)


def in_blocks(task: Task, ring: Ring) -> RolloutActing:
    """By a native network, which is compiled and needs no torch."""
    networks = BlockNetworks(task, optimiser_from(task.config.optimiser), 1, Team(1))
    collector, parameters = BlockCollector(task, networks), task.parameters[task.acting]

    def load(content: Any, buffers: Any) -> Any:
        parameters[...], found = from_bytes(content, len(parameters), buffers)
        networks.pack()
        return found

    return RolloutActing(ring, collector, collector.collect, load)


def in_batches(task: Task, ring: Ring, device: Any) -> RolloutActing:
    """By a torch module, or in plain Python."""
    network = device.make_network(task.built[task.acting], None)
    collector = BatchCollector(task, device, network, [task.seeds])

    def load(content: Any, buffers: Any) -> Any:
        own = network.buffers() if network.takes_statistics else {}
        parameters, found = from_bytes(content, network.num_parameters, {**own, **buffers})
        network.parameters_from(parameters)
        if own:
            network.load_buffers({name: found[name] for name in own})
        return {name: found[name] for name in buffers}

    def collect() -> None:
        with device.at_work():
            collector.collect()

    return RolloutActing(ring, collector, collect, load)
