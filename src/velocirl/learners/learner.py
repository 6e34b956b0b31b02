"""Learners: the interface for agents, and the base class with networks on one device and possibly delayed reports.

On a GPU, `iterate` returns while the iteration still runs. The iteration's report is then copied to the host, and read
after the next iteration has started, so that the GPU never waits for Python.
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
    """Interface of learners, which run iterations; `settle` updates the agent's parameters and normalization."""

    phases: dict[str, float]  # seconds by phase

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
        """Start an iteration after which the run has taken `steps` steps. May return the previous iteration's report.

        `schedule` has the iteration's parameters, in the form that its algorithm needs.
        """
        ...

    def drain(self) -> Report | None:
        """Wait for the current iteration. Returns its report, unless that was returned before."""
        ...

    def settle(self) -> None:
        """Update the agent's own arrays."""
        ...

    def take(self) -> None:
        """Continue from the agent's own arrays after they were changed from outside."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state that determines the next iterations, besides the agent's own arrays."""
        ...

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state that `state` returned."""
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
        self._told: list[Report] | None = None  # reports read before they were requested
        self._failed = False
        self.fresh = True  # whether the agent's own arrays match the device's

    @abstractmethod
    def run(self, schedule: Any, steps: int) -> Pending:
        """Start an iteration."""

    def iterate(self, schedule: Any, steps: int) -> Report | None:
        """Start an iteration. Returns its report on a CPU, and the previous iteration's report on a GPU."""
        reports = self.iterate_all(schedule, steps)
        return None if reports is None else reports[0]

    def iterate_all(self, schedule: Any, steps: int) -> list[Report] | None:
        """Start an iteration. Returns the reports of all agents that learn together, timed as in `iterate`."""
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
        """Wait for the current iteration, update `phases`, and return the report of the first agent."""
        reports = self.drain_all()
        self.fold()
        return None if reports is None else reports[0]

    def drain_all(self) -> list[Report] | None:
        """Wait for the current iteration. Returns the reports of all agents that learn together."""
        self.look()
        told, self._told = self._told, None
        return told

    def fold(self) -> None:
        """Update `phases` from counters that are read only occasionally."""

    def look(self) -> None:
        """Read the pending report, so that nothing of a failed iteration is saved or shown."""
        pending, self._pending = self._pending, None
        if pending is not None and not self._failed:  # iterations after a failure are ignored
            self._told = self._read(pending)

    def settle(self) -> None:
        """Update the agent's own arrays; after a failure they stay unchanged."""
        self.look()
        if self.fresh or self._failed:
            return
        self.wait()
        self.give_back()
        self.fresh = True

    def take(self) -> None:
        """Continue from the agent's own arrays."""
        self.wait()
        self.take_in()
        self.networks.pack()
        self.device.synchronise()
        self.fresh = True

    def give_back(self) -> None:
        """Copy the acting network's parameters and statistics to the agent's own arrays."""
        acting = self.task.acting
        self.task.parameters[acting][...] = self.networks.to_host(acting)
        if self.networks.networks[acting].takes_statistics:
            self.task.built[acting].held.load_buffers(self.networks.networks[acting].buffers())

    def take_in(self) -> None:
        """Load the acting network's parameters and statistics from the agent's own arrays."""
        acting = self.task.acting
        network = self.networks.networks[acting]
        network.parameters_from(self.task.parameters[acting])
        if network.takes_statistics:
            network.load_buffers(self.task.built[acting].held.buffers())

    def loss_scale(self) -> dict[str, NDArray[Any]]:
        """Return the loss scale of fp16 gradients and the number of steps without overflow; empty without scaling."""
        if not self._scaling:
            return {}
        counts, numbers = self.device.fetch(self.clock.counts), self.device.fetch(self.clock.numbers)
        return {"learner.loss_scale": numbers[:, NEXT_SCALE].copy(), "learner.good_steps": counts[:, GOOD].copy()}

    def load_loss_scale(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore the values that `loss_scale` returned."""
        if self._scaling and "learner.loss_scale" in state:
            numbers, counts = self.device.fetch(self.clock.numbers), self.device.fetch(self.clock.counts)
            numbers[:, NEXT_SCALE], counts[:, GOOD] = state["learner.loss_scale"], state["learner.good_steps"]
            self.device.store(self.clock.numbers, numbers)
            self.device.store(self.clock.counts, counts)

    def gauges(self) -> dict[str, float]:
        """Return peak GPU memory, and with several CPU threads the number now at work."""
        peak = self.device.peak_bytes()
        return {**self.networks.gauges(), **({} if peak is None else {"device/peak_bytes": float(peak)})}

    def close(self) -> None:
        """End no process: none was started."""

    def wait(self) -> None:
        """Wait until everything that was started is done."""
        self.device.synchronise()

    @abstractmethod
    def count(self, pending: Pending) -> None:
        """Count the seconds of an iteration, once it is done."""

    def _read(self, pending: Pending) -> list[Report]:
        """Return the reports of an iteration, once it is done."""
        self.count(pending)
        try:
            return self.reports.read(pending)
        except NumericalError:
            self._failed = True
            raise
