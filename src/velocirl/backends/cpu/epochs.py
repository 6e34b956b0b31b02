"""Epochs of updates over a rollout on CPU threads, as one compiled call.

Environments are cut into shares; each share samples its own part of a minibatch (see `driver`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.driver import driver_translator
from velocirl.backends.cpu.lowering import Iteration, blocks_of_rows
from velocirl.backends.cpu.networks import ThreadedNetworks
from velocirl.backends.cpu.update import Rows, ThreadedProgram
from velocirl.buffers.records import narrow
from velocirl.collect.rollout_records import RolloutRecords
from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed
from velocirl.engine.compiler.units import BoundUnit, bind_unit, call_unit
from velocirl.engine.targets.indexing import row_loop
from velocirl.engine.targets.team import run_region
from velocirl.program.clock import MINIBATCHES
from velocirl.program.counting.phases import PLACES_OF_TIME
from velocirl.program.reducing import part_of
from velocirl.program.rollout import epochs
from velocirl.program.schedule import SCHEDULE, Schedule
from velocirl.program.sharing import sharing_of_rollouts
from velocirl.program.task import Task


class Order(NamedTuple):
    """Sampling order of a share."""

    units: NDArray[np.int32]  # shuffled units: single samples, or whole environments
    chosen: NDArray[np.int32]  # (units,) minibatch of each
    filled: NDArray[np.int64]  # (minibatches,) end of each minibatch's filled part of `order`
    order: NDArray[np.int32]  # (samples,) row of each sample, one minibatch after the other
    rng: NDArray[np.uint64]  # (2,)
    columns: NDArray[np.int64]  # (functions,) frames of functions over time columns, called before each epoch
    schedule: NDArray[Any]  # (1,) SCHEDULE
    first_copy: int
    copies: int
    horizon: int


class Minibatch(NamedTuple):
    """Sizes of the minibatches, and the state of the current one."""

    schedule: NDArray[Any]  # (1,) SCHEDULE
    sizes: NDArray[np.int64]  # (shares of all processes,) number of units of each share
    own: NDArray[np.int64]  # (shares,) number of units of each share of this process
    rows: NDArray[np.int64]  # (shares, 2) range of the minibatch in each share's order
    job: NDArray[Any]  # (1,) JOB
    gathered: NDArray[np.int64]  # (2,) minibatches and rows accumulated since the last step
    counts: NDArray[np.int64]  # (2,) minibatches processed in this iteration, and in the run


def begin_order(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Reset the units to their stored order."""
    own = arguments[0]
    for u in range(len(own.units)):
        own.units[u] = u
    return 0


def shuffle(arguments, first, stop, place):  # noqa: ARG001
    """Shuffle the units (Fisher-Yates), and cut the order into minibatches.

    A minibatch's gradient is a sum, so its samples may come in any order. They come in memory order: it is much faster.
    """
    own = arguments[0]
    unit, minibatches = own.schedule[0].unit, own.schedule[0].minibatches
    units = len(own.units)
    for last in range(units - 1, 0, -1):
        other = random.integer(own.rng, 0, last + 1)
        own.units[last], own.units[other] = own.units[other], own.units[last]
    for m in range(minibatches):
        for u in range(units * m // minibatches, units * (m + 1) // minibatches):
            own.chosen[own.units[u]] = m
        own.filled[m] = units * m // minibatches * unit
    sample = 0
    for copy in range(own.copies):
        for t in range(own.horizon):
            m = own.chosen[sample if unit == 1 else copy]
            own.order[own.filled[m]] = place_of(own, copy, t)
            own.filled[m] += 1
            sample += 1
    return 0


def order_rows(arguments, first, stop, place):  # noqa: ARG001
    """Order the samples as they are stored."""
    own = arguments[0]
    for copy in range(own.copies):
        for t in range(own.horizon):
            own.order[copy * own.horizon + t] = place_of(own, copy, t)
    return 0


def find_columns(arguments, first, stop, place):  # noqa: ARG001
    """Call the functions over time columns, for the environments of a share."""
    own = arguments[0]
    for k in range(len(own.columns)):
        call_unit(own.columns[k], own.first_copy, own.first_copy + own.copies, 0)
    return 0


def place_of(own, copy, t):
    """Return the row of step t of a share's environment; each environment has one row more than steps."""
    return (own.first_copy + copy) * (own.horizon + 1) + t


def begin_minibatch(arguments, m, stop, place):  # noqa: ARG001 - as every unit
    """Begin minibatch `m` of an epoch; returns its number in the run, or 0 where it is empty.

    Each share cuts its own part: with many minibatches, some can be empty.
    """
    own = arguments[0]
    schedule, job = own.schedule[0], own.job[0]
    unit, minibatches = schedule.unit, schedule.minibatches
    if m == 0:
        own.gathered[:] = 0
    batch = 0
    for other in range(len(own.sizes)):
        units = own.sizes[other]
        batch += (units * (m + 1) // minibatches - units * m // minibatches) * unit
    if batch == 0:
        return 0
    for share in range(len(own.own)):
        own.rows[share, 0] = own.own[share] * m // minibatches * unit
        own.rows[share, 1] = own.own[share] * (m + 1) // minibatches * unit
    own.gathered[0] += 1
    own.gathered[1] += batch
    last = own.gathered[0] == schedule.accumulate or m == minibatches - 1
    job.batch = batch
    job.begins = own.gathered[0] == 1
    job.weight = own.gathered[1] if last else 0
    if last:
        own.gathered[:] = 0
    own.counts[0] += 1
    own.counts[1] += 1
    return own.counts[1]


def call_shares(arguments, first, stop, place):  # noqa: ARG001
    """Call one unit for each share, on the team's threads."""
    team, offset, shares = arguments
    run_region(team, offset, 1, 0, shares, 0)
    return 0


class ThreadedEpochs:
    """All epochs over a rollout: shuffled samples, and one update for each minibatch."""

    def __init__(self, task: Task, networks: ThreadedNetworks, recorded: RolloutRecords) -> None:
        config, part = task.config, part_of(task.config.num_envs, task.config.shares, task.reducer)
        self._task, self._networks, self._recorded, self._part = task, networks, recorded, part
        self.sharing = sharing_of_rollouts(config.num_envs, config.shares, task.reducer.size)
        self.shares = np.array(part.shares, np.int64)
        unit = config.horizon if config.minibatches == "environments" else 1
        samples = [int(stop - first) * config.horizon for first, stop in part.shares]
        self.orders = [np.zeros(count, np.int32) for count in samples]
        self.rng = random.streams(task.seeds.learner, len(samples), part.first_thread)
        self._counts, self._schedule = np.zeros(2, np.int64), np.zeros(1, SCHEDULE)
        self._flat = narrow(recorded.records).reshape(-1)
        asked = any("rng" in call.arguments for call in task.program.calls)
        first = part.first * (config.horizon + 1)
        self._streams = random.streams(task.seeds.learner + 1, len(self._flat) if asked else 1, first if asked else 0)
        self._before: ThreadedProgram | None = None
        if task.before_epoch is not None:
            self._before = ThreadedProgram(task.before_epoch, networks, self._rows)
            self._before.rows[:, 1] = samples
            self._before.job["batch"] = sum(samples)
        self.program = ThreadedProgram(task.program, networks, self._rows)
        self._iteration = self._lower(unit, np.array([copies * config.horizon // unit for copies in part.all_copies]))
        self.counters = self.program.counters

    @property
    def done(self) -> int:
        """Number of minibatches processed in the run."""
        return int(self._counts[1])

    def begin(self) -> None:
        """Begin an iteration."""
        self._networks.clock.counts[0, MINIBATCHES] = 0
        self._counts[0] = 0
        self.program.begin()

    def run(self, schedule: Schedule) -> None:
        """Run all epochs."""
        self._schedule[0] = schedule.epochs, schedule.minibatches, schedule.accumulate, schedule.unit
        self._iteration["epochs"], self._iteration["minibatches"] = schedule.epochs, schedule.minibatches
        self._networks.team.run(self._iteration.start, self.program.tuner, 0, 0)
        self._networks.clock.counts[0, MINIBATCHES] = self._counts[0]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the random streams of the shuffles and the minibatch counts."""
        return {"learner.rng": self.rng.copy(), "learner.minibatches": self._counts.copy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved `state`; its streams are used only if the number of shares is the same."""
        self._counts[...] = state["learner.minibatches"]
        if state["learner.rng"].shape == self.rng.shape:  # else saved on another device or with other shares
            self.rng[...] = state["learner.rng"]

    def _rows(self, share: int) -> Rows:
        """Return the rows of a share, in sampling order."""
        order, flat = self.orders[share], self._flat
        names = [name for name in flat.dtype.names or () if flat.dtype[name].base == np.float32]
        fields = {name: flat[name] if flat[name].ndim > 1 else flat[name][:, None] for name in names}
        fields["observation"] = self._recorded.records["observation"].reshape(len(flat), -1)
        return Rows(
            Indexed(flat, order),
            {name: Indexed(array, order) for name, array in fields.items()},
            Indexed(self._streams, order),
        )

    def _lower(self, unit: int, sizes: NDArray[np.int64]) -> Iteration:
        """Lower the operations; `sizes` are the numbers of units of each share of all processes."""
        task, team, networks = self._task, self._networks.team, self._networks
        given = [self._recorded.columns_for(*one) for one in task.reestimates]
        columns = [networks.bind(row_loop(one), *fields, disjoint=False) for one, fields in given]
        orders = [
            Order(
                units=np.zeros(len(order) // unit, np.int32),
                chosen=np.zeros(len(order) // unit, np.int32),
                filled=np.zeros(task.config.num_minibatches, np.int64),
                order=order,
                rng=self.rng[share],
                columns=np.array([one.frame for one in columns], np.int64),
                schedule=self._schedule,
                first_copy=int(self.shares[share, 0]),
                copies=int(self.shares[share, 1] - self.shares[share, 0]),
                horizon=task.config.horizon,
            )
            for share, order in enumerate(self.orders)
        ]
        own = Minibatch(
            schedule=self._schedule,
            sizes=sizes,
            own=np.array([len(one.units) for one in orders], np.int64),
            rows=self.program.rows,
            job=self.program.job,
            gathered=np.zeros(2, np.int64),
            counts=self._counts,
        )

        def bind(function: Any, *arguments: Any) -> BoundUnit:
            return bind_unit(function, arguments, driver_translator(), disjoint=False)

        def bind_shares(function: Any) -> BoundUnit:
            return bind(call_shares, team.view, team.add([bind(function, one) for one in orders]), len(orders))

        functions = {"begin_order": begin_order, "order_rows": order_rows, "shuffle": shuffle, "columns": find_columns}
        units = {name: bind_shares(one) for name, one in functions.items()}
        units |= {"begin_minibatch": bind(begin_minibatch, own), "update": self.program.update}
        if self._before is not None:
            units["before_epoch"] = self._before.update
        self._held = columns
        learns = epochs(reestimates=self._before is not None)
        return Iteration(learns, units, PLACES_OF_TIME, self.program.counters[0], *blocks_of_rows(0))
