"""On-policy learning on CPU threads: collect, estimate, update, each one compiled call.

Environments are cut into shares, each of which draws its own part of a minibatch (see `driver`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.lowering import Iteration, blocks_of_rows
from velocirl.buffers.records import narrow
from velocirl.buffers.returns import add_spread, scale_rewards
from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed, Shared
from velocirl.engine.compiler.counters import Meter, clear, read
from velocirl.engine.compiler.units import BoundUnit, bind_unit, call_unit
from velocirl.engine.targets.indexing import row_loop
from velocirl.engine.targets.team import Team, run_region
from velocirl.learners.block.collector import BlockCollector, BlockRecorded
from velocirl.learners.block.decisions import Decisions
from velocirl.learners.block.driver import FAULT, driver_translator
from velocirl.learners.block.networks import BlockNetworks
from velocirl.learners.block.program import BlockProgram, Rows, frames_for
from velocirl.learners.counting.episodes import logged_episodes
from velocirl.learners.counting.phases import (
    PLACES_OF_TIME,
    ROLLOUT_COUNTS,
    UPDATE_COUNTS,
    add,
    add_parts,
)  # fmt: skip
from velocirl.learners.counting.reporting import latest_of_all
from velocirl.learners.faults import check_faults, check_update
from velocirl.learners.learner import Report, explained_variance
from velocirl.learners.normalising import REWARD_LIMIT
from velocirl.learners.reducing import part_of
from velocirl.learners.schedule import SCHEDULE, Schedule
from velocirl.learners.sharing import Sharing, sharing_of_rollouts
from velocirl.learners.task import Task
from velocirl.optim.optimisers import optimiser_from
from velocirl.program.rollout import epochs
from velocirl.vector.native import FleetVectorEnv


class Order(NamedTuple):
    """The order in which a share draws its samples."""

    units: NDArray[np.int32]  # what is drawn together (single samples, or copies), in the order of the draw
    chosen: NDArray[np.int32]  # (units,) the minibatch of each
    filled: NDArray[np.int64]  # (minibatches,) how far the order of each is known
    order: NDArray[np.int32]  # (samples,) where the samples lie, one minibatch after the other
    rng: NDArray[np.uint64]  # (2,)
    columns: NDArray[np.int64]  # (functions,) frames of functions over columns in time, before each epoch
    schedule: NDArray[Any]  # (1,) SCHEDULE
    first_copy: int
    copies: int
    horizon: int


class Minibatch(NamedTuple):
    """The cut of minibatches, and what the update knows of the one under way."""

    schedule: NDArray[Any]  # (1,) SCHEDULE
    sizes: NDArray[np.int64]  # (shares of all processes,) how many units each share draws from
    own: NDArray[np.int64]  # (shares,) the same of this process
    rows: NDArray[np.int64]  # (shares, 2) of each share's order: the first of the minibatch, and after its last
    job: NDArray[Any]  # (1,) JOB
    gathered: NDArray[np.int64]  # (2,) minibatches since the last step, and their rows
    counts: NDArray[np.int64]  # (2,) minibatches learned from in this iteration, and in the run


def begin_order(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Begin with the units as they lie."""
    own = arguments[0]
    for u in range(len(own.units)):
        own.units[u] = u
    return 0


def shuffle(arguments, first, stop, place):  # noqa: ARG001
    """Put the units into a random order (Fisher and Yates), and cut it into minibatches.

    A minibatch is a sum over its samples, whose order is free: they come as they lie, which memory gives much faster.
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
    """Take the samples in the order in which they lie."""
    own = arguments[0]
    for copy in range(own.copies):
        for t in range(own.horizon):
            own.order[copy * own.horizon + t] = place_of(own, copy, t)
    return 0


def find_columns(arguments, first, stop, place):  # noqa: ARG001
    """Call functions over columns in time, of the copies of a share."""
    own = arguments[0]
    for k in range(len(own.columns)):
        call_unit(own.columns[k], own.first_copy, own.first_copy + own.copies, 0)
    return 0


def place_of(own, copy, t):
    """Return the row of step t of a share's copy; each copy has one row more than steps."""
    return (own.first_copy + copy) * (own.horizon + 1) + t


def begin_minibatch(arguments, m, stop, place):  # noqa: ARG001 - as every unit
    """Begin minibatch `m` of an epoch; returns its number in the run, or 0 where it is empty.

    Each share cuts its own part, so that many minibatches can leave some without any rows.
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
    """Call a unit of each share, by whichever threads are there."""
    team, offset, shares = arguments
    run_region(team, offset, 1, 0, shares, 0)
    return 0


def run_units(arguments, first, stop, place):  # noqa: ARG001
    """Call units one after the other for share number `first` of the copies."""
    units, shares = arguments
    for k in range(len(units)):
        call_unit(units[k], shares[first, 0], shares[first, 1], 0)
    return 0


class BlockRollout:
    """Collects, estimates and updates one after the other; everything is done when `iterate` returns."""

    def __init__(self, task: Task) -> None:
        config = task.config
        self.task, self.phases, self._recent = task, task.phases, task.recent
        self._reducer = task.reducer
        self._part = part = part_of(config.num_envs, config.shares, task.reducer)
        self._shares = np.array(part.shares, np.int64)
        count = len(self._shares)
        self.team = Team(self.learning_threads, frames_for(count, self.learning_threads))
        self.networks = BlockNetworks(task, optimiser_from(config.optimiser), count, self.team)
        self.collector = self._make_collector()
        records = self._learnt_records()
        self._flat, self.records = narrow(records).reshape(-1), records
        unit = config.horizon if config.minibatches == "environments" else 1
        samples = [int(stop - first) * config.horizon for first, stop in self._shares]
        self._orders = [np.zeros(count, np.int32) for count in samples]
        self._sizes = np.array([copies * config.horizon // unit for copies in part.all_copies])
        self.rng = random.streams(task.seeds.learner, count, part.first_thread)
        self._minibatches = np.zeros(2, np.int64)
        self._schedule = np.zeros(1, SCHEDULE)
        self.program = BlockProgram(task.program, self.networks, self._rows)
        self._before = None
        if task.before_epoch is not None:
            self._before = BlockProgram(task.before_epoch, self.networks, self._rows)
            self._before.rows[:, 1] = samples
            self._before.job["batch"] = sum(samples)
        self._decisions = Decisions(task, self.networks.numbers)
        self._spread = np.zeros((part.copies, 4))
        self._scale = np.zeros(1, [("reward_scale", np.float32), ("reward_limit", np.float32)])
        self._scaling: BoundUnit | None = None
        if config.normalise_rewards:
            self._scaling = self.networks.bind(row_loop(scale_rewards), narrow(records)["reward"], Shared(self._scale))
        self._bind_estimates()
        self._epochs = self._lower_epochs(unit)
        self._meters = {
            "rollout": Meter(self.phases, "rollout/policy", self._count_rollout),
            "update": Meter(self.phases, "update/forward", self._count_update),
        }
        self._batch = config.num_envs * config.horizon
        self.collector.begin()
        self.take()

    def iterate(self, schedule: Schedule, steps: int) -> Report | None:
        """Collect, estimate, update."""
        networks, first = self.networks, steps - self._batch
        with self._phase("rollout"):
            self._collect()
            check_faults(self.collector.log.fault, first, self._part.first, self.task.config.num_envs)
        with self._phase("estimate"):
            log = self.collector.log
            names, told = self.task.report, self.collector.reported
            violations = np.array([told[len(names) :].sum()], np.float64)
            logs = log.returns, log.lengths, *told[: len(names)]
            returns, lengths, *reported = latest_of_all(log.ends, self._recent, self._reducer, self._part.first, *logs)
            if self.task.constraints:
                self._reducer.sum(violations)
            self._add_moments()
            self._decide()
            self._hand_over()
            explained = self._estimate()
        with self._phase("update"):
            self._update(schedule)
            for parameters in networks.learnt:
                check_update(bool(self.program.outcome[FAULT]), parameters, steps)
        return Report(
            steps=steps,
            learning_rate=schedule.learning_rate,
            means=self.program.means(),
            gradient_norm=networks.mean_norm(),
            minibatches=int(self._minibatches[0]),
            optimiser_steps=int(networks.first_steps[0]),
            explained_variance=explained,
            returns=returns,
            lengths=lengths,
            reported=dict(zip(names, reported, strict=True)),
            violations=int(violations[0]),
        )

    def drain(self) -> Report | None:
        """Nothing is ever under way."""
        for meter in self._meters.values():
            meter.fold()

    def gauges(self) -> dict[str, float]:
        """Return how many threads work on updates now."""
        return self.team.gauges(self.program.tuner)

    def settle(self) -> None:
        """The agent's own arrays are those that this learner works on."""

    def take(self) -> None:
        """Lay the parameters out anew, and see as the normaliser says."""
        self.networks.pack()
        self._look_through()

    def state(self) -> dict[str, NDArray[Any]]:
        """That of the networks and of the collector."""
        own = {name: array.copy() for name, array in self._arrays().items()}
        return {**own, **self.collector.state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        own = self._arrays()
        streams = own.pop("learner.rng")
        for name, array in own.items():
            array[...] = state[name]
        if state["learner.rng"].shape == streams.shape:  # else another device or number of shares was asked for
            streams[...] = state["learner.rng"]
        self.collector.load_state(state)
        self.take()

    @property
    def envs(self) -> Any:
        """The copies."""
        return self.collector.envs

    @property
    def fleet(self) -> FleetVectorEnv | None:
        """The copies, where they are compiled."""
        return self.envs if isinstance(self.envs, FleetVectorEnv) else None

    @property
    def sharing(self) -> Sharing:
        """Who has what where several processes train."""
        return sharing_of_rollouts(self.task.config.num_envs, self.task.config.shares, self._reducer.size)

    @property
    def learning_threads(self) -> int:
        """Threads that may work on an update."""
        return self.task.config.threads

    def _make_collector(self) -> BlockRecorded:
        return BlockCollector(self.task, self.networks)

    def _learnt_records(self) -> NDArray[Any]:
        """The rollout that is learnt from: the collector's own."""
        return self.collector.records

    def _arrays(self) -> dict[str, NDArray[Any]]:
        own = {"learner.rng": self.rng, "learner.minibatches": self._minibatches}
        return {**own, **self.networks.arrays()}

    def _rows(self, share: int) -> Rows:
        """The rows of a share, as they are drawn."""
        order, flat = self._orders[share], self._flat
        names = [name for name in flat.dtype.names or () if flat.dtype[name].base == np.float32]
        fields = {name: flat[name] if flat[name].ndim > 1 else flat[name][:, None] for name in names}
        fields["observation"] = self.records["observation"].reshape(len(flat), -1)
        return Rows(
            Indexed(flat, order),
            {name: Indexed(array, order) for name, array in fields.items()},
            Indexed(self._streams, order),
        )

    @cached_property
    def _streams(self) -> NDArray[np.uint64]:
        """A stream for each row, where a function draws."""
        asked = any("rng" in call.arguments for call in self.task.program.calls)
        first = self._part.first * (self.task.config.horizon + 1)
        return random.streams(self.task.seeds.learner + 1, len(self._flat) if asked else 1, first if asked else 0)

    def _bind_column(self, function: Callable[..., Any], names: Sequence[str]) -> BoundUnit:
        """A function over a copy's column in time."""
        rows = narrow(self.records)
        columns = tuple(Shared(self.task.settings) if name == "settings" else rows[name] for name in names)
        return self.networks.bind(row_loop(function), *columns, disjoint=False)  # fields of the same records

    def _bind_estimates(self) -> None:
        """Bind what is estimated of a rollout as one region: a share of the copies is an item."""
        task, rows = self.task, narrow(self.records)
        self._estimates = [self._bind_column(*one) for one in task.estimates]
        if task.explained is not None:
            columns = [rows[name] for name in task.explained]
            self._estimates.append(self.networks.bind(row_loop(add_spread), *columns, self._spread, disjoint=False))
        frames = np.array([unit.frame for unit in self._estimates], np.int64)
        unit = bind_unit(run_units, (frames, self._shares), driver_translator(), disjoint=False)
        self._estimate_tuner = self.team.tuner(len(self._shares))
        self._estimating = self.team.region(self._estimate_tuner, [unit])

    def _lower_epochs(self, unit: int) -> Iteration:
        config = self.task.config
        task, team, counters = self.task, self.team, self.program.counters[0]
        columns = [self._bind_column(*one) for one in task.reestimates]
        orders = [
            Order(
                units=np.zeros(len(order) // unit, np.int32),
                chosen=np.zeros(len(order) // unit, np.int32),
                filled=np.zeros(config.num_minibatches, np.int64),
                order=order,
                rng=self.rng[share],
                columns=np.array([one.frame for one in columns], np.int64),
                schedule=self._schedule,
                first_copy=int(self._shares[share, 0]),
                copies=int(self._shares[share, 1] - self._shares[share, 0]),
                horizon=config.horizon,
            )
            for share, order in enumerate(self._orders)
        ]
        own = Minibatch(
            schedule=self._schedule,
            sizes=self._sizes,
            own=np.array([len(one.units) for one in orders], np.int64),
            rows=self.program.rows,
            job=self.program.job,
            gathered=np.zeros(2, np.int64),
            counts=self._minibatches,
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
        return Iteration(learns, units, PLACES_OF_TIME, counters, *blocks_of_rows(0))

    def _collect(self) -> None:
        """Fill the collector's rollout."""
        self._look_through()
        self.collector.collect()

    def _look_through(self) -> None:
        """See as the normaliser says."""
        if not self.task.encoding.normalises:
            return
        moments = self.task.observation_moments
        self.collector.centre[:], self.collector.inverse_scale[:] = moments.mean, moments.inverse_deviation

    def _hand_over(self) -> None:
        """The learner reads the collector's own rollout."""

    def _add_moments(self) -> None:
        """Let the normalisers take in what the rollout saw."""
        collector, task = self.collector, self.task
        if task.encoding.normalises:
            sums = collector.observation_sums.sum(0)
            self._reducer.sum(sums)
            task.observation_moments.add(sums[0], sums[1], self._batch)
        if self._scaling is not None and task.reward_moments is not None:
            sums = collector.reward_sums.sum(0)
            self._reducer.sum(sums)
            task.reward_moments.add(sums[:1], sums[1:], self._batch)

    def _decide(self) -> None:
        """Call what is called once after a rollout, with the episodes that ended in it."""
        if not self.task.decisions:
            return
        costs = self.task.costs_of(self.collector.reported)
        self._decisions.decide(logged_episodes(self.collector.log.ends, costs))

    def _estimate(self) -> float:
        """Estimate advantages and targets; gives the variance of the targets that the critic explains."""
        moments, copies = self.task.reward_moments, len(self.records)
        if self._scaling is not None and moments is not None:
            self._scale[0] = float(moments.inverse_deviation[0]), REWARD_LIMIT
            self._scaling(0, copies)
        self.team.run(self._estimating, self._estimate_tuner, len(self._shares), 0)
        if self.task.explained is None:
            return float("nan")
        spread = self._spread.sum(0)
        self._reducer.sum(spread)
        return explained_variance(spread, self._batch)

    def _update(self, schedule: Schedule) -> None:
        self._schedule[0] = schedule.epochs, schedule.minibatches, schedule.accumulate, schedule.unit
        learning = schedule.learning_rate, schedule.max_grad_norm, schedule.max_grad_value
        self.networks.learning[0] = learning
        self._epochs["epochs"], self._epochs["minibatches"] = schedule.epochs, schedule.minibatches
        self._minibatches[0] = 0
        self.program.begin()
        self.program.run(self._epochs.start, 0, 0)

    def _count_rollout(self, seconds: float) -> None:
        add_parts(self.phases, "rollout", seconds, read(self.collector.counters, ROLLOUT_COUNTS))
        clear(self.collector.counters)

    def _count_update(self, seconds: float) -> None:
        add_parts(self.phases, "update", seconds, read(self.program.counters, UPDATE_COUNTS))
        clear(self.program.counters)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Count the seconds of a phase, and of the parts that compiled loops have counted in it."""
        begun = time.perf_counter()
        yield
        seconds = time.perf_counter() - begun
        add(self.phases, name, seconds)
        if name in self._meters:
            self._meters[name].add(seconds)
