"""Learners: what an agent asks of one, and the base class: networks on one device, reports that may come late.

On a GPU an iteration is under way when `iterate` returns; its report is copied to the host behind it, and read when the
next one has been started, so that the GPU never waits for Python.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.reports import Pending, Report, Reports
from velocirl.program.clock import (
    COUNTS,
    FIRST_LOSS_SCALE,
    GOOD,
    LOSS_SCALE,
    MAX_NORM,
    MAX_VALUE,
    NEXT_SCALE,
    NUMBERS,
    Clock,
)  # fmt: skip
from velocirl.program.faults import NumericalError, tells_of_memory
from velocirl.program.sharing import Sharing
from velocirl.program.task import Task


class Learner(Protocol):
    """Runs iterations; its agent's parameters and normalisers are brought up to date by `settle`."""

    phases: dict[str, float]  # seconds spent, by what they were spent on

    @property
    def fleet(self) -> Any:
        """The environments, where they are compiled; else None."""
        ...

    @property
    def envs(self) -> Any:
        """The environments, where Python steps them in this process; else None."""
        ...

    @property
    def sharing(self) -> Sharing:
        """How ranks shard its arrays."""
        ...

    def iterate(self, schedule: Any, steps: int) -> Report | None:
        """Begin an iteration after which the run has taken `steps` steps; the report may be that of the one before.

        `schedule` has the numbers of the iteration, as its algorithm needs them.
        """
        ...

    def drain(self) -> Report | None:
        """Wait for what is under way; its report, unless that was given."""
        ...

    def settle(self) -> None:
        """Bring the agent's own arrays up to date."""
        ...

    def take(self) -> None:
        """Go on from the agent's own arrays, which something else has changed."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """What decides the next iterations, besides the agent's own arrays."""
        ...

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        ...

    def gauges(self) -> dict[str, float]:
        """Return metrics of the machinery: threads, memory, waiting, collectors."""
        ...

    def close(self) -> None:
        """End the processes that it has started."""
        ...


class BaseLearner:
    """Networks on one device, of one agent or of several, and the reports of its iterations."""

    reports: Reports
    sharing: Sharing
    envs: Any = None
    fleet: Any = None

    def __init__(self, task: Task, device: Any, agents: int, *, scaling: bool = False) -> None:
        self.task, self.device, self.agents, self.phases = task, device, agents, task.phases
        numbers = np.zeros((agents, NUMBERS))
        numbers[:, [MAX_NORM, MAX_VALUE]] = task.config.max_grad_norm, task.config.max_grad_value
        numbers[:, [LOSS_SCALE, NEXT_SCALE]] = FIRST_LOSS_SCALE if scaling else 1.0
        self._scaling = scaling
        counts = device.zeros(agents, COUNTS, dtype=np.int64)
        self.clock = Clock(counts, device.zeros(agents, NUMBERS, dtype=np.float64))
        device.store(self.clock.numbers, numbers)
        self.networks = device.make_networks(task, agents, self.clock, scaling=scaling)
        self._pending: Pending | None = None
        self._told: list[Report] | None = None  # reports that were read before anybody asked for them
        self._failed = False
        self.fresh = True  # whether the agent's own arrays are those of the device

    @abstractmethod
    def run(self, schedule: Any, steps: int) -> Pending:
        """Start an iteration."""

    def iterate(self, schedule: Any, steps: int) -> Report | None:
        """Start an iteration; gives the report of this one on the CPU, of the one before on a GPU."""
        reports = self.iterate_all(schedule, steps)
        return None if reports is None else reports[0]

    def iterate_all(self, schedule: Any, steps: int) -> list[Report] | None:
        """The same for all agents that learn together."""
        with tells_of_memory(self.task.config), self.device.at_work():
            self.device.refresh()
            started = self.run(schedule, steps)
        self.fresh = False
        before, self._pending = self._pending, started
        if not self.device.reports_late:
            return self.drain_all()
        told, self._told = self._told, None
        return told if before is None else self._read(before)

    def drain(self) -> Report | None:
        """Wait for the iteration that is under way, and bring the phases up to date."""
        reports = self.drain_all()
        self.fold()
        return None if reports is None else reports[0]

    def drain_all(self) -> list[Report] | None:
        """The same for all agents that learn together."""
        self.look()
        told, self._told = self._told, None
        return told

    def fold(self) -> None:
        """Bring the phases up to date, of which some are read now and then only."""

    def look(self) -> None:
        """Read the report of what is under way, so that nothing is saved or shown of an iteration that failed."""
        pending, self._pending = self._pending, None
        if pending is not None and not self._failed:  # what followed a failure is of no interest
            self._told = self._read(pending)

    def settle(self) -> None:
        """Bring the agent's own arrays up to date; after a failure they stay as they were."""
        self.look()
        if self.fresh or self._failed:
            return
        self.wait()
        self.give_back()
        self.fresh = True

    def take(self) -> None:
        """Go on from the agent's own arrays."""
        self.wait()
        self.take_in()
        self.networks.pack()
        self.device.synchronise()
        self.fresh = True

    def give_back(self) -> None:
        """Write the agent's own arrays."""
        acting = self.task.acting
        self.task.parameters[acting][...] = self.networks.to_host(acting)
        if self.networks.networks[acting].takes_statistics:
            self.task.built[acting].held.load_buffers(self.networks.networks[acting].buffers())

    def take_in(self) -> None:
        """Read the agent's own arrays."""
        acting = self.task.acting
        network = self.networks.networks[acting]
        network.parameters_from(self.task.parameters[acting])
        if network.takes_statistics:
            network.load_buffers(self.task.built[acting].held.buffers())

    def loss_scale(self) -> dict[str, NDArray[Any]]:
        """How gradients are scaled against underflow, and for how long there was no overflow; where they are."""
        if not self._scaling:
            return {}
        counts, numbers = self.device.fetch(self.clock.counts), self.device.fetch(self.clock.numbers)
        return {"learner.loss_scale": numbers[:, NEXT_SCALE].copy(), "learner.good_steps": counts[:, GOOD].copy()}

    def load_loss_scale(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `loss_scale` gave."""
        if self._scaling and "learner.loss_scale" in state:
            numbers, counts = self.device.fetch(self.clock.numbers), self.device.fetch(self.clock.counts)
            numbers[:, NEXT_SCALE], counts[:, GOOD] = state["learner.loss_scale"], state["learner.good_steps"]
            self.device.store(self.clock.numbers, numbers)
            self.device.store(self.clock.counts, counts)

    def gauges(self) -> dict[str, float]:
        """The most memory of a GPU that was taken so far; how many of several CPU threads work now."""
        peak = self.device.peak_bytes()
        return {**self.networks.gauges(), **({} if peak is None else {"device/peak_bytes": float(peak)})}

    def close(self) -> None:
        """End no process: none was started."""

    def wait(self) -> None:
        """Until everything that was started is done."""
        self.device.synchronise()

    @abstractmethod
    def count(self, pending: Pending) -> None:
        """Count the seconds of an iteration, once it is done."""

    def _read(self, pending: Pending) -> list[Report]:
        """The reports of an iteration, once it is done."""
        self.count(pending)
        try:
            return self.reports.read(pending)
        except NumericalError:
            self._failed = True
            raise
