"""Devices: array operations, launches and networks for learners.

`Device` works on NumPy arrays; `PythonDevice` runs everything in Python's interpreter. `backends.cpu.device` has CPU
threads with native networks, `backends.torch.device` has torch on the CPU and on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.collector import BatchCollector
from velocirl.backends.batch.data_ring import DataRing
from velocirl.backends.batch.entries import Entering
from velocirl.backends.batch.epochs import BatchEpochs
from velocirl.backends.batch.networks import BatchNetworks
from velocirl.backends.batch.overlap.background import Background, ThreadBackground
from velocirl.backends.batch.overlap.lagging_ring import LaggingRing
from velocirl.backends.batch.overlap.overlapping import OverlappedRounds
from velocirl.backends.batch.ring import BatchRing
from velocirl.backends.batch.rounds import BatchRounds
from velocirl.backends.batch.steps import BatchSteps
from velocirl.backends.batch.updates import BatchUpdates
from velocirl.collect.rollout_records import RolloutRecords
from velocirl.engine.compiler.columns import keep_row
from velocirl.engine.environment import Environment
from velocirl.engine.fleets.loops import stepping
from velocirl.engine.records import with_attributes
from velocirl.engine.targets.launching import Bound, Launcher, PythonLauncher, Work, by_row
from velocirl.networks.mlp import MLP
from velocirl.networks.numpy_mlp import NumpyMLP
from velocirl.program.clock import Clock
from velocirl.program.counting.episodes import add_episodes
from velocirl.program.reducing import Reducer, Share
from velocirl.program.rows.experience import Experience, of_fleet
from velocirl.program.seeding import Seeds
from velocirl.program.several import numbers_type
from velocirl.program.task import Task
from velocirl.vector.native import FleetVectorEnv


class Device:
    """Array operations on the host. Arrays of several agents have one row, or consecutive rows, for each agent."""

    name: str
    captures = False  # whether `capture` creates CUDA graphs
    reports_late = False  # whether iterations are asynchronous: their call returns before they end
    sequential = True  # whether indices run in sequence, so that they may share a random stream
    copies_first = False  # rollout layout: environment-major if True, else time-major
    sees_newest = False  # whether a background rollout waits for normalizer statistics of the one before
    _launcher: Launcher

    def zeros(self, *shape: int, dtype: Any = np.float32) -> Any:
        """Return zeros, for velocirl's functions and for networks."""
        return np.zeros(shape, dtype)

    def records(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return zeroed records, for velocirl's functions."""
        return np.zeros(shape, dtype)

    def flat(self, array: Any) -> Any:
        """Return a one-dimensional view of the array."""
        return array.reshape(-1)

    def as_records(self, rows: Any, names: Sequence[str], kind: Any) -> Any:
        """Return a view of rows (..., numbers) as records with these field names."""
        return rows.view(numbers_type(names, kind))[..., 0]

    def put(self, host: NDArray[Any]) -> Any:
        """Copy an array of the host, for velocirl's functions; supports types that torch does not have."""
        return host.copy()

    def shown(self, host: NDArray[Any]) -> Any:
        """Return this device's copy of a host array, as of the last `refresh`."""
        return host

    def refresh(self) -> None:
        """Update the copies of host arrays that `shown` returned."""

    def on_host(self) -> Any:
        """Return the host's device, for environments that step there."""
        return self

    def from_host(self, array: Any) -> Any:
        """Return a host array as networks of this device read it."""
        return array

    def mirror(self, array: Any) -> tuple[Any, Callable[[], None]]:
        """Return this device's copy of a host array, and the function that updates it; here the array and a no-op."""
        return array, lambda: None

    def store(self, array: Any, host: Any) -> None:
        """Overwrite an array with values of the host."""
        array[...] = host

    def fetch(self, array: Any) -> NDArray[Any]:
        """Return a copy of an array on the host."""
        return np.array(array)

    def strip(self, size: int) -> int:
        """Return the number of pixels of a frame of `size` pixels that one index copies, see `program.rows.frames`."""
        return size

    def fetch_rows(self, array: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return a copy of some rows of an array on the host."""
        return array[rows]

    def store_rows(self, array: Any, rows: NDArray[np.int64], host: NDArray[Any]) -> None:
        """Overwrite some rows of an array."""
        array[rows] = host

    def numbers(self, array: Any, rows: NDArray[np.int64], factor: float) -> Any:
        """Return rows of bytes as float32, multiplied by `factor`, for networks."""
        return array[rows].astype(np.float32) * np.float32(factor)

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of this device or of the host to one of this device."""
        target[...] = source

    def fill(self, array: Any, value: float) -> None:
        """Fill an array with one value."""
        array[...] = value

    def summing(self, rows: int) -> tuple[int, Callable[..., None]]:  # noqa: ARG002 - a GPU asks
        """Return the number of rows that velocirl's functions sum, and `keep(sums, i, record)` for row i."""
        return 1, keep_row

    def sum_rows(self, rows: Any, into: Any) -> None:
        """Sum rows (agents * rows, numbers) over each agent's rows, into (agents, numbers)."""
        into[...] = rows.reshape(len(into), -1, rows.shape[-1]).sum(1, dtype=into.dtype)

    def reducing(self, reducer: Reducer) -> Callable[[Any], None]:
        """Return the function that all-reduces an array of this device over all processes, in place."""
        return reducer.sum

    def find_norms(self, gradient: Any, into: Any) -> None:
        """Compute the norm of each agent's gradient, into (agents,)."""
        into[...] = np.linalg.norm(gradient.reshape(len(into), -1).astype(np.float64), axis=1)

    def find_least(self, array: Any, into: Any) -> None:
        """Compute the minimum of an array."""
        into[...] = array.min()

    def find_greatest(self, array: Any, into: Any) -> None:
        """Compute the maximum of an array and of the previous value of `into`."""
        into[...] = max(into[0], array.max())

    def latest(self, ends: Any, most: int) -> tuple[Any, Any]:
        """Return the `most` greatest of `ends` (agents, places), in descending order, and their indices.

        An ended episode has its index as value, so that the greatest are the latest; see `program.rows.recording.Log`.
        """
        found, places = np.full((len(ends), most), -1, ends.dtype), np.zeros((len(ends), most), np.int64)
        for agent, row in enumerate(ends):
            last = np.flatnonzero(row >= 0)[::-1][:most]
            found[agent, : len(last)], places[agent, : len(last)] = row[last], last
        return found, places

    def take(self, array: Any, places: Any) -> Any:
        """Return the elements of an array (agents, places) at indices (agents, some)."""
        return array[:, places[0]] if len(array) == 1 else np.take_along_axis(array, places, 1)

    def first_fault(self, fault: Any, none: int) -> Any:
        """Return the first fault (agents, 1) of each agent's environments, as fault * copies + environment, or `none`.

        `fault` has the shape (agents, copies).
        """
        copies = fault.shape[1]
        if not fault.any():
            return np.full((len(fault), 1), none)
        return np.where(fault > 0, fault.astype(np.int64) * copies + np.arange(copies), none).min(1, keepdims=True)

    def total(self, array: Any) -> Any:
        """Return the sums (agents, 1) of each agent's numbers (agents, numbers); non-finite if one of them is."""
        return array.sum(1, dtype=np.float64, keepdims=True)

    def join(self, parts: Sequence[Any], into: Any) -> None:
        """Concatenate columns (agents, some) as doubles."""
        np.concatenate(parts, axis=1, out=into, casting="same_kind")

    def make_hosts(self, agents: int, width: int) -> list[Any]:
        """Return two host buffers for reports (agents, width): one can be read while the other is written."""
        return [np.zeros((agents, width)) for _ in range(2)]

    def send(self, array: Any, host: Any) -> Any:
        """Begin to copy an array to the host; returns the host array."""
        host[...] = array
        return host

    def write(self, array: Any, host: NDArray[Any]) -> None:
        """Overwrite an array as `store` does, without synchronization."""
        array[...] = host

    def launch(self, works: Sequence[Any], count: int) -> Callable[..., None]:
        """Return `run(place)`, which runs work for every index below `count`; see `engine.targets.launching`."""
        return self._launcher.launch([Work(work.function, _recorded(work.arguments)) for work in works], count)

    def over_copies(self, functions: Sequence[tuple[Callable[..., Any], Any]], copies: int) -> Callable[[], None]:
        """Return a function that calls scalar functions of columns, one after the other, for all environments."""
        runs = [self.launch([Work(by_row(function), columns)], copies) for function, columns in functions]

        def run() -> None:
            for one in runs:
                one(0)

        return run

    def summing_episodes(self, ends: Any, costs: Any) -> tuple[Any, Callable[[], None]]:
        """Return sums (copies, 1 + constraints) over a rollout's episodes, and the function that computes them."""
        agents, _, copies = ends.shape
        sums = self.zeros(agents * copies, 1 + len(costs), dtype=np.float64)
        run = self.launch([Work(add_episodes, (ends, costs, sums))], agents * copies)
        return sums, lambda: run(0)

    def make_network(self, built: Any, agents: int | None) -> Any:
        """Create a network on this device, with parameters of zero."""
        raise NotImplementedError

    def make_networks(self, task: Task, agents: int, clock: Clock, *, scaling: bool) -> Any:
        """Create all networks of a task on this device."""
        return BatchNetworks(task, self, agents, clock, scaling=scaling)

    def make_updates(self, task: Task, networks: Any, share: Share) -> Any:
        """Create updates from a replay buffer or dataset; this process samples a `share` of a batch's rows."""
        if task.recorded is not None:
            ring = DataRing(self, task, networks.clock, share)
        elif task.config.overlap:
            ring = LaggingRing(self, task, networks.clock, share, task.config.rounds_of_updates)
        else:
            ring = BatchRing(self, task, networks.clock, share)
        return BatchUpdates(task, self, networks, ring, share)

    def make_entering(self, ring: Any) -> Any:
        """Return the object that enters whole groups of records from free collectors."""
        return Entering(ring)

    def make_steps(self, task: Task, network: Any, ring: Any, source: Any, max_steps: int) -> Any:
        """Create the steps of environments into a replay buffer, with a network's actions."""
        return BatchSteps(task, self, network, ring, source, max_steps)

    def make_rounds(
        self, task: Task, steps: Any, updates: Any, acting: Any, decide: Callable[[], None]
    ) -> Any:  # fmt: skip
        """Create rounds of steps and updates; `decide` is called before updates, if decisions depend on episodes."""
        decides = decide if task.decisions else None
        if task.config.overlap:
            return OverlappedRounds(task, self, steps, updates, decides, acting)
        return BatchRounds(task, self, steps, updates, decides)

    def make_acting(self, task: Task) -> Any:
        """Create the acting network, for actors that do not learn."""
        return self.make_network(task.built[task.acting], None)

    def copy_network(self, target: Any, source: Any) -> None:
        """Copy one network's state to another of the same kind."""
        self.copy(target.parameters, source.parameters)
        if source.takes_statistics:
            target.buffers_from(source)

    def make_collector(self, task: Task, network: Any, seeds: Sequence[Seeds]) -> Any:
        """Create the collector of rollouts by a network of this device."""
        return BatchCollector(task, self, network, seeds)

    def make_epochs(self, task: Task, networks: Any, recorded: RolloutRecords, seeds: Sequence[Seeds]) -> Any:
        """Create the epochs that learn from a rollout."""
        return BatchEpochs(task, self, networks, recorded, seeds)

    def make_fleet(
        self, environment: Environment, count: int, params: Mapping[str, Any], *, check: bool = False
    ) -> FleetVectorEnv:
        """Create a fleet of an environment on this device."""
        return FleetVectorEnv(environment, count, seed=0, threads=1, params=params, copy=False, check=check)

    def experience(self, fleet: FleetVectorEnv) -> Experience:
        """Return the observations and actions of a fleet's environments, as views of its arrays."""
        return of_fleet(fleet.copies)

    def steps_itself(self, source: Any) -> bool:  # noqa: ARG002
        """Return whether external environments step on this device and keep their observations there."""
        return False

    def stepping(self, fleet: FleetVectorEnv) -> list[Any]:
        """Return the work that steps each environment by its action."""
        target: Any = fleet.target
        return [Bound(target.advance_unit)]

    def make_background(self, collector: Any) -> Background:  # noqa: ARG002 - a GPU needs it
        """Create the background in which a collector runs during learning."""
        return ThreadBackground()

    def capture(self, function: Callable[[], None], stream: Any = None) -> Callable[[], None]:  # noqa: ARG002
        """Return the function to call from now on: here `function` itself."""
        return function

    def at_work(self) -> AbstractContextManager[None]:
        """Return a context in which this device runs work."""
        return nullcontext()

    def at_work_first(self) -> AbstractContextManager[None]:
        """Return the context of the first work."""
        return self.at_work()

    def synchronise(self) -> None:
        """No-op: all work is synchronous."""

    def peak_bytes(self) -> int | None:
        """Return the peak GPU memory in bytes; None without a GPU."""
        return None

    def mark(self) -> Any:
        """Return the current time, for `seconds_between`."""
        return time.perf_counter()

    def seconds_between(self, *marks: Any) -> list[float]:
        """Return the seconds from each mark to the next."""
        return [after - before for before, after in pairwise(marks)]


class PythonDevice(Device):
    """Python's interpreter: scalar functions run uncompiled, and networks use NumPy."""

    name = "python"

    def __init__(self) -> None:
        self._launcher = PythonLauncher()

    def make_network(self, built: Any, agents: int | None) -> Any:
        """Create a network on this device, with parameters of zero."""
        if not isinstance(built, MLP) or agents is not None:
            raise ValueError('device="python" trains native networks: leave `network` out')
        return NumpyMLP(built)

    def make_fleet(
        self, environment: Environment, count: int, params: Mapping[str, Any], *, check: bool = False
    ) -> FleetVectorEnv:
        """Create a fleet of an environment on this device."""
        return FleetVectorEnv(environment, count, seed=0, device="python", params=params, copy=False, check=check)

    def stepping(self, fleet: FleetVectorEnv) -> list[Any]:
        """Return the work that steps each environment by its action."""
        target: Any = fleet.target
        return [Work(stepping(target.life), (target.copies,))]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Return a context in which this device runs work."""
        with np.errstate(all="ignore"):
            yield


def _recorded(value: Any) -> Any:
    """Return the arguments with the fields of records as attributes."""
    if isinstance(value, np.ndarray):
        return with_attributes(value) if value.dtype.names else value
    if isinstance(value, tuple):
        members = [_recorded(member) for member in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    return value
