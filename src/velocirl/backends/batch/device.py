"""Devices: array operations, launches and networks, as learners ask for them.

`Device` works on NumPy arrays and `PythonDevice` runs everything in the interpreter. `block.device` has CPU threads
with native networks, `torch_device` has torch on the CPU and on a GPU.
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
    """Array operations on the host. Arrays of several agents have a row, or rows one after the other, for each."""

    name: str
    captures = False  # whether `capture` makes graphs
    reports_late = False  # whether an iteration is under way when the call that started it returns
    sequential = True  # whether indices are gone through one after the other, so that they may share a random stream
    copies_first = False  # whether the steps of a copy lie together in a rollout; else those of all copies at a time do
    sees_newest = False  # whether a rollout beside an update waits until the normaliser knows the one before
    _launcher: Launcher

    def zeros(self, *shape: int, dtype: Any = np.float32) -> Any:
        """Zeros, for our own functions and for networks."""
        return np.zeros(shape, dtype)

    def records(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Records of zeros, for our own functions."""
        return np.zeros(shape, dtype)

    def flat(self, array: Any) -> Any:
        """The same memory in one dimension."""
        return array.reshape(-1)

    def as_records(self, rows: Any, names: Sequence[str], kind: Any) -> Any:
        """Rows (..., numbers) as records of numbers under these names, in the same memory."""
        return rows.view(numbers_type(names, kind))[..., 0]

    def put(self, host: NDArray[Any]) -> Any:
        """A copy of an array of the host, for our own functions; of types that torch does not have, too."""
        return host.copy()

    def shown(self, host: NDArray[Any]) -> Any:
        """An array of this device that shows one of the host, as it was at the last `refresh`."""
        return host

    def refresh(self) -> None:
        """Show arrays of the host as they are now."""

    def on_host(self) -> Any:
        """The device of the host, for environments that step there."""
        return self

    def from_host(self, array: Any) -> Any:
        """An array of the host as networks of this device read it."""
        return array

    def mirror(self, array: Any) -> tuple[Any, Callable[[], None]]:
        """An array of this device that shows one of the host, and what brings it up to date: the same, and nothing."""
        return array, lambda: None

    def store(self, array: Any, host: Any) -> None:
        """Replace what an array holds."""
        array[...] = host

    def fetch(self, array: Any) -> NDArray[Any]:
        """What an array holds, as a copy on the host."""
        return np.array(array)

    def strip(self, size: int) -> int:
        """How many pixels of a frame of this size an index moves, see `learners.frames`."""
        return size

    def fetch_rows(self, array: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Some rows of an array, as a copy on the host."""
        return array[rows]

    def store_rows(self, array: Any, rows: NDArray[np.int64], host: NDArray[Any]) -> None:
        """Replace some rows of an array."""
        array[rows] = host

    def numbers(self, array: Any, rows: NDArray[np.int64], factor: float) -> Any:
        """Some rows of bytes as single precision, multiplied, for networks."""
        return array[rows].astype(np.float32) * np.float32(factor)

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array of this device, or of the host, into another of this device."""
        target[...] = source

    def fill(self, array: Any, value: float) -> None:
        """Let an array hold one value everywhere."""
        array[...] = value

    def summing(self, rows: int) -> tuple[int, Callable[..., None]]:  # noqa: ARG002 - a GPU asks
        """How many of an agent's rows our own functions sum up, and `keep(sums, i, record)` for that of row i."""
        return 1, keep_row

    def sum_rows(self, rows: Any, into: Any) -> None:
        """The sums (agents, numbers) of rows (agents * rows, numbers)."""
        into[...] = rows.reshape(len(into), -1, rows.shape[-1]).sum(1, dtype=into.dtype)

    def reducing(self, reducer: Reducer) -> Callable[[Any], None]:
        """What adds up an array of this device over all processes that train together, in its place."""
        return reducer.sum

    def find_norms(self, gradient: Any, into: Any) -> None:
        """The norm of each agent's gradient."""
        into[...] = np.linalg.norm(gradient.reshape(len(into), -1).astype(np.float64), axis=1)

    def find_least(self, array: Any, into: Any) -> None:
        """The least of an array."""
        into[...] = array.min()

    def find_greatest(self, array: Any, into: Any) -> None:
        """The greatest of an array and of what was found before."""
        into[...] = max(into[0], array.max())

    def latest(self, ends: Any, most: int) -> tuple[Any, Any]:
        """The greatest of `ends` (agents, places), the greatest first, and their places; see `recording.Log`.

        An episode that ended is numbered by its place, so that the greatest are the last.
        """
        found, places = np.full((len(ends), most), -1, ends.dtype), np.zeros((len(ends), most), np.int64)
        for agent, row in enumerate(ends):
            last = np.flatnonzero(row >= 0)[::-1][:most]
            found[agent, : len(last)], places[agent, : len(last)] = row[last], last
        return found, places

    def take(self, array: Any, places: Any) -> Any:
        """What an array (agents, places) holds at places (agents, some)."""
        return array[:, places[0]] if len(array) == 1 else np.take_along_axis(array, places, 1)

    def first_fault(self, fault: Any, none: int) -> Any:
        """The first fault of each agent's copies (agents, copies), as fault * copies + copy; or `none`."""
        copies = fault.shape[1]
        if not fault.any():
            return np.full((len(fault), 1), none)
        return np.where(fault > 0, fault.astype(np.int64) * copies + np.arange(copies), none).min(1, keepdims=True)

    def total(self, array: Any) -> Any:
        """The sum of each agent's numbers (agents, numbers): a number that is none where one of them is."""
        return array.sum(1, dtype=np.float64, keepdims=True)

    def join(self, parts: Sequence[Any], into: Any) -> None:
        """Columns (agents, some) side by side, as doubles."""
        np.concatenate(parts, axis=1, out=into, casting="same_kind")

    def make_hosts(self, agents: int, width: int) -> list[Any]:
        """Where reports are read: two, so that one can be read while the next is written."""
        return [np.zeros((agents, width)) for _ in range(2)]

    def send(self, array: Any, host: Any) -> Any:
        """Begin to copy an array to the host."""
        host[...] = array
        return host

    def write(self, array: Any, host: NDArray[Any]) -> None:
        """The same as `store`, without waiting for what is under way."""
        array[...] = host

    def launch(self, works: Sequence[Any], count: int) -> Callable[..., None]:
        """What runs work for every index below `count` (see `engine.launching`); it is called with the place."""
        return self._launcher.launch([Work(work.function, _recorded(work.arguments)) for work in works], count)

    def over_copies(self, functions: Sequence[tuple[Callable[..., Any], Any]], copies: int) -> Callable[[], None]:
        """What calls scalar functions of columns, one after the other, for all copies."""
        runs = [self.launch([Work(by_row(function), columns)], copies) for function, columns in functions]

        def run() -> None:
            for one in runs:
                one(0)

        return run

    def summing_episodes(self, ends: Any, costs: Any) -> tuple[Any, Callable[[], None]]:
        """Sums (copies, 1 + constraints) of the episodes of a rollout, and what finds them."""
        agents, _, copies = ends.shape
        sums = self.zeros(agents * copies, 1 + len(costs), dtype=np.float64)
        run = self.launch([Work(add_episodes, (ends, costs, sums))], agents * copies)
        return sums, lambda: run(0)

    def make_network(self, built: Any, agents: int | None) -> Any:
        """A network on this device; its parameters begin at zero."""
        raise NotImplementedError

    def make_networks(self, task: Task, agents: int, clock: Clock, *, scaling: bool) -> Any:
        """All networks of a task on this device."""
        return BatchNetworks(task, self, agents, clock, scaling=scaling)

    def make_updates(self, task: Task, networks: Any, share: Share) -> Any:
        """Updates from a replay buffer or from data; this process draws a `share` of the rows of a batch."""
        if task.recorded is not None:
            ring = DataRing(self, task, networks.clock, share)
        elif task.config.overlap:
            ring = LaggingRing(self, task, networks.clock, share, task.config.rounds_of_updates)
        else:
            ring = BatchRing(self, task, networks.clock, share)
        return BatchUpdates(task, self, networks, ring, share)

    def make_entering(self, ring: Any) -> Any:
        """Entries of whole groups of records, as free collectors bring them."""
        return Entering(ring)

    def make_steps(self, task: Task, network: Any, ring: Any, source: Any, max_steps: int) -> Any:
        """Steps of environments into a replay buffer, by the actions of a network."""
        return BatchSteps(task, self, network, ring, source, max_steps)

    def make_rounds(
        self, task: Task, steps: Any, updates: Any, acting: Any, decide: Callable[[], None]
    ) -> Any:  # fmt: skip
        """Rounds of steps and updates; `decide` is called before updates, where something is decided by episodes."""
        decides = decide if task.decisions else None
        if task.config.overlap:
            return OverlappedRounds(task, self, steps, updates, decides, acting)
        return BatchRounds(task, self, steps, updates, decides)

    def make_acting(self, task: Task) -> Any:
        """The network that acts, for who does not learn."""
        return self.make_network(task.built[task.acting], None)

    def copy_network(self, target: Any, source: Any) -> None:
        """Let a network be as another of its kind is."""
        self.copy(target.parameters, source.parameters)
        if source.takes_statistics:
            target.buffers_from(source)

    def make_collector(self, task: Task, network: Any, seeds: Sequence[Seeds]) -> Any:
        """What collects rollouts by a network of this device."""
        return BatchCollector(task, self, network, seeds)

    def make_epochs(self, task: Task, networks: Any, recorded: RolloutRecords, seeds: Sequence[Seeds]) -> Any:
        """What learns from a rollout."""
        return BatchEpochs(task, self, networks, recorded, seeds)

    def make_fleet(
        self, environment: Environment, count: int, params: Mapping[str, Any], *, check: bool = False
    ) -> FleetVectorEnv:
        """Copies of an environment on this device."""
        return FleetVectorEnv(environment, count, seed=0, threads=1, params=params, copy=False, check=check)

    def experience(self, fleet: FleetVectorEnv) -> Experience:
        """What the copies of a fleet see and do, in their own memory."""
        return of_fleet(fleet.copies)

    def steps_itself(self, source: Any) -> bool:  # noqa: ARG002
        """Whether the copies that were given step on this device, and their observations stay there."""
        return False

    def stepping(self, fleet: FleetVectorEnv) -> list[Any]:
        """The work by which each copy takes the step that its action says."""
        target: Any = fleet.target
        return [Bound(target.advance_unit)]

    def make_background(self, collector: Any) -> Background:  # noqa: ARG002 - a GPU needs it
        """What collects while somebody learns."""
        return ThreadBackground()

    def capture(self, function: Callable[[], None], stream: Any = None) -> Callable[[], None]:  # noqa: ARG002
        """What runs the function from now on: the function."""
        return function

    def at_work(self) -> AbstractContextManager[None]:
        """While this lasts, this device is at work."""
        return nullcontext()

    def at_work_first(self) -> AbstractContextManager[None]:
        """The same for the first time."""
        return self.at_work()

    def synchronise(self) -> None:
        """Nothing is ever under way."""

    def peak_bytes(self) -> int | None:
        """The most memory of a GPU that was taken so far; None where there is none."""
        return None

    def mark(self) -> Any:
        """A moment."""
        return time.perf_counter()

    def seconds_between(self, *marks: Any) -> list[float]:
        """The seconds from each moment to the next."""
        return [after - before for before, after in pairwise(marks)]


class PythonDevice(Device):
    """The interpreter: every scalar function runs as it was written, and networks are NumPy's."""

    name = "python"

    def __init__(self) -> None:
        self._launcher = PythonLauncher()

    def make_network(self, built: Any, agents: int | None) -> Any:
        """A network on this device; its parameters begin at zero."""
        if not isinstance(built, MLP) or agents is not None:
            raise ValueError('device="python" trains native networks: leave `network` out')
        return NumpyMLP(built)

    def make_fleet(
        self, environment: Environment, count: int, params: Mapping[str, Any], *, check: bool = False
    ) -> FleetVectorEnv:
        """Copies of an environment on this device."""
        return FleetVectorEnv(environment, count, seed=0, device="python", params=params, copy=False, check=check)

    def stepping(self, fleet: FleetVectorEnv) -> list[Any]:
        """The work by which each copy takes the step that its action says."""
        target: Any = fleet.target
        return [Work(stepping(target.life), (target.copies,))]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While this lasts, this device is at work."""
        with np.errstate(all="ignore"):
            yield


def _recorded(value: Any) -> Any:
    """The same arguments, with the fields of records as attributes."""
    if isinstance(value, np.ndarray):
        return with_attributes(value) if value.dtype.names else value
    if isinstance(value, tuple):
        members = [_recorded(member) for member in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    return value
