"""Learner device: CPU threads with native networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.device import Device
from velocirl.backends.cpu.collector import ThreadedCollector
from velocirl.backends.cpu.driver import driver_translator
from velocirl.backends.cpu.epochs import ThreadedEpochs
from velocirl.backends.cpu.memory import NativeMemory
from velocirl.backends.cpu.networks import NativeNetwork, ThreadedNetworks
from velocirl.backends.cpu.rounds import ThreadedRounds
from velocirl.backends.cpu.updates import ThreadedUpdates
from velocirl.collect.rollout_records import RolloutRecords
from velocirl.collect.steps import Steps
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import BoundUnit, bind_unit, call_unit
from velocirl.engine.targets.indexing import index_loop, row_loop
from velocirl.engine.targets.launching import Bound, PythonLauncher
from velocirl.engine.targets.team import Team
from velocirl.optim.optimisers import optimiser_from
from velocirl.program.clock import Clock
from velocirl.program.counting.episodes import logged_episodes
from velocirl.program.reducing import Share, shares_of
from velocirl.program.seeding import Seeds
from velocirl.program.task import Task

IN_PYTHON = 256  # maximum indices of work done once per iteration that is not worth compiling


def run_units(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Call units one after the other for share number `first` of the environments."""
    units, shares = arguments
    for k in range(len(units)):
        call_unit(units[k], shares[first, 0], shares[first, 1], 0)
    return 0


class ThreadsDevice(Device):
    """NumPy arrays and a team of threads.

    Rollouts, sampling and updates are iterations of compiled units; `launch` is for work done once per iteration.
    """

    name = "cpu"
    copies_first = sees_newest = True

    def __init__(self, threads: int, shares: int) -> None:
        """Rows of a batch are cut into `shares`, which determine rounding; threads claim shares."""
        self.shares, self.team = shares, Team(threads, _frames_for(shares, threads))
        self._launcher = PythonLauncher()

    def launch(self, works: Sequence[Any], count: int) -> Callable[..., None]:
        """Return a function `run(place)` that runs work for every index below `count`."""
        if count <= IN_PYTHON and not any(isinstance(work, Bound) for work in works):
            return super().launch(works, count)
        translator = learning_translator("learner")
        units = [self._bind(work, translator) for work in works]

        def run(place: int = 0) -> None:
            for unit in units:
                unit(0, count, place)

        return run

    def _bind(self, work: Any, translator: Any) -> BoundUnit:
        if isinstance(work, Bound):
            return work.unit
        loop: Any = index_loop(work.function)
        return bind_unit(loop, work.arguments, translator, disjoint=False)

    def make_networks(self, task: Task, agents: int, clock: Clock, *, scaling: bool) -> ThreadedNetworks:  # noqa: ARG002
        """Create all networks of a task: native ones, of one agent, in single precision."""
        return ThreadedNetworks(task, optimiser_from(task.config.optimiser), self.shares, self.team, clock, self)

    def make_updates(self, task: Task, networks: ThreadedNetworks, share: Share) -> ThreadedUpdates:
        """Create updates from a replay buffer or dataset; this process samples a `share` of a batch's rows."""
        return ThreadedUpdates(task, networks, NativeMemory(task), share)

    def make_entering(self, ring: NativeMemory) -> NativeMemory:
        """Return the object that enters whole groups of records from free collectors."""
        return ring

    def make_steps(self, task: Task, network: Any, ring: Any, source: Any, max_steps: int) -> Steps:  # noqa: ARG002
        """Create the steps of environments; the rounds bind their units."""
        return Steps(task, self, source, max_steps)

    def make_rounds(
        self,
        task: Task,
        steps: Any,
        updates: ThreadedUpdates,
        acting: Any,  # noqa: ARG002 - nothing overlaps here
        decide: Callable[[], None],
    ) -> ThreadedRounds:
        """Create rounds of steps and updates; `decide` is called before updates, if decisions depend on episodes."""
        return ThreadedRounds(task, updates.networks, steps, updates, decide if task.decisions else None)

    def make_acting(self, task: Task) -> NativeNetwork:
        """Create the acting network, for actors that do not learn."""
        optimiser = optimiser_from(task.config.optimiser)
        return ThreadedNetworks(task, optimiser, self.shares, self.team).networks[task.acting]

    def make_collector(self, task: Task, network: NativeNetwork, seeds: Sequence[Seeds]) -> ThreadedCollector:
        """Create the collector of rollouts by a network of this device."""
        return ThreadedCollector(task, self, network, seeds)

    def make_epochs(
        self, task: Task, networks: ThreadedNetworks, recorded: RolloutRecords, seeds: Sequence[Seeds]  # noqa: ARG002
    ) -> ThreadedEpochs:  # fmt: skip
        """Create the epochs that learn from a rollout."""
        return ThreadedEpochs(task, networks, recorded)

    def copy_network(self, target: NativeNetwork, source: NativeNetwork) -> None:
        """Copy one network's state to another of the same kind."""
        target.copy_from(source)

    def over_copies(self, functions: Sequence[tuple[Callable[..., Any], Any]], copies: int) -> Callable[[], None]:
        """Bind functions over columns of environments as one region, with one item for each share of environments."""
        translator, team = learning_translator("learner"), self.team
        units = [bind_unit(row_loop(one), columns, translator, disjoint=False) for one, columns in functions]
        frames, shares = np.array([one.frame for one in units], np.int64), np.array(shares_of(copies, self.shares))
        unit = bind_unit(run_units, (frames, shares), driver_translator(), disjoint=False)
        tuner = team.tuner(len(shares))
        region = team.region(tuner, [unit])

        def run() -> None:
            assert units  # noqa: S101 - whose frames the region calls
            team.run(region, tuner, len(shares), 0)

        return run

    def summing_episodes(self, ends: Any, costs: Any) -> tuple[Any, Callable[[], None]]:
        """Return sums over a rollout's episodes, and the function that computes them.

        The sums are over all environments together.
        """
        sums = np.zeros((1, 1 + len(costs)))

        def run() -> None:
            sums[0] = logged_episodes(ends, costs)

        return sums, run

    def as_records(self, rows: NDArray[Any], names: Sequence[str], kind: Any) -> Any:
        """View rows (..., numbers) as records with these field names; native scalars already are records."""
        return rows if rows.dtype.names else super().as_records(rows, names, kind)


def _frames_for(shares: int, threads: int) -> int:
    """Return the number of units that a team needs room for: some for each share, worker and network."""
    return 256 + 8 * (shares + threads)
