"""Learning from a memory on CPU threads: steps, memory and updates are one compiled loop.

Thread 0 steps the copies, remembers and draws the batches; the others wait until there is one to learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.frames_converted import to_observations
from velocirl.buffers.making import make_buffer
from velocirl.buffers.n_step import cut_off
from velocirl.buffers.records import drawn_type, narrow, transition_type
from velocirl.buffers.replay import Selection
from velocirl.engine import random
from velocirl.engine.compiler.clock import now
from velocirl.engine.compiler.columns import Indexed
from velocirl.engine.compiler.units import BoundUnit, bind_unit
from velocirl.engine.saved import named, within
from velocirl.learners.block.driver import FAULT, driver_translator
from velocirl.learners.block.networks import BlockNetworks
from velocirl.learners.block.program import BlockProgram, Rows
from velocirl.learners.block.stepping import (
    ADVANCE,
    DRAW,
    ENTER,
    REVISE,
    UNITS,
    Stepping,
    decide_only,
    drawing,
    drawn_costs,
    entering,
    fetch,
    learn_only,
    no_costs,
    record_only,
    revising,
    run_fleet,
)  # fmt: skip
from velocirl.learners.block.steps import Course, step_units
from velocirl.learners.counting.counters import TIMED, Meter, clear, read
from velocirl.learners.counting.phases import (
    BUFFER,
    ENVIRONMENT,
    LEARNING,
    POLICY,
    ROLLOUT_COUNTS,
    ROUND,
    STEPPING,
    UPDATE_COUNTS,
    add,
    add_parts,
)  # fmt: skip
from velocirl.learners.counting.reporting import latest
from velocirl.learners.experience import of_fleet
from velocirl.learners.faults import check_faults, check_update
from velocirl.learners.frames import room_of
from velocirl.learners.host import HostExperience
from velocirl.learners.learner import Report
from velocirl.learners.pace import PACE, Pace, group_of, updates_due
from velocirl.learners.recording import Log
from velocirl.learners.task import Task
from velocirl.optim.optimisers import optimiser_from
from velocirl.vector.native import FleetVectorEnv


class Batch(NamedTuple):
    """What is drawn for one update."""

    places: NDArray[np.int64]  # (batch,) of the records
    lasts: NDArray[np.int64]  # (batch,) of those whose next observation and mask count
    rewards: NDArray[np.float32]  # (batch,) of up to n steps
    discounts: NDArray[np.float32]  # (batch,) of what follows; 0 where nothing does
    weights: NDArray[np.float32]  # (batch,) of the losses
    errors: NDArray[np.float32]  # (batch,) what the update found


class BlockReplay:
    """Steps all copies, remembers and learns; everything is done when `iterate` returns."""

    def __init__(self, task: Task, most_steps: int) -> None:
        config = task.config
        self.task, self.phases, self._recent = task, task.phases, task.recent
        copies, threads = config.num_envs, config.threads
        self.envs = self._make_copies()
        self._meter = Meter(self.phases, "rollout", self._count)
        self._rng = random.streams(task.seeds.policy, copies)
        batch = config.effective_batch_size  # blocks are small: here it is as one batch that gradients add up
        self._streams = random.streams(task.seeds.learner + 1, batch)  # a stream for each row of a batch
        self._noise = np.zeros((copies, task.head.action_size), np.float32)
        kind = transition_type(task.encoding.inputs, task.action, task.stored)
        self.buffer = make_buffer(config, kind, task.seeds.learner)
        self.networks = BlockNetworks(task, optimiser_from(config.optimiser), threads)
        places, numbers = np.zeros((2, batch), np.int64), np.zeros((4, batch), np.float32)
        self.batch = Batch(places[0], places[1], numbers[0], numbers[1], numbers[2], numbers[3])
        self.drawn = np.zeros(batch, drawn_type(task.action, task.fields))
        ends = (1, most_steps, copies)
        self._log = Log(np.zeros(ends, np.int32), np.zeros(ends, np.float32), np.zeros(ends, np.int32),
                        np.zeros(copies, np.int32))  # fmt: skip
        self._reported = np.zeros((task.report_rows, *ends), np.float32)
        self._updates, self._pace = np.zeros(1, np.int64), np.zeros(1, PACE)
        self._clock, self._exploration, self._beta = np.zeros(1, np.int64), np.zeros(1, np.float32), np.zeros(1)
        rows = self._rows()
        self.program = BlockProgram(task.program, self.networks, lambda thread: rows, threads)  # noqa: ARG005 - all alike
        for job in self.program.jobs:
            job["batch"], job["begins"], job["weight"] = batch, 1, batch
        self._connect()
        self._begin()
        self.take()

    @property
    def fleet(self) -> FleetVectorEnv | None:
        """The copies, where they are compiled."""
        return self.envs if isinstance(self.envs, FleetVectorEnv) else None

    def iterate(self, schedule: Pace, steps: int) -> Report:
        """Every copy takes `schedule.rounds` steps, after which the run has taken `steps`; what is due is learnt."""
        log, networks, copies = self._log, self.networks, self.task.config.num_envs
        before, first = int(self._updates[0]), steps - schedule.rounds * copies
        log.fault[:] = 0
        self._pace[0] = tuple(schedule)
        networks.learning[0] = schedule.learning_rate, schedule.max_grad_norm, schedule.max_grad_value
        self.program.begin()
        begun = perf_counter()
        self._run(first, schedule)
        self.buffer.tidy()
        self._meter.add(perf_counter() - begun)
        check_faults(log.fault, first)
        for parameters in networks.learnt:
            check_update(bool(self.program.outcome[FAULT]), parameters, steps)
        updates = int(self._updates[0]) - before
        taken = [one[0, : schedule.rounds] for one in (log.ends, log.returns, log.lengths, *self._reported)]
        names = self.task.report
        returns, lengths, *reported = latest(taken[0], self._recent, *taken[1 : 3 + len(names)])
        return Report(
            steps=steps,
            learning_rate=schedule.learning_rate,
            means=self.program.means(),
            gradient_norm=networks.mean_norm(),
            minibatches=updates,
            optimiser_steps=before + updates,
            explained_variance=float("nan"),
            returns=returns,
            lengths=lengths,
            reported=dict(zip(names, reported, strict=True)),
            violations=int(sum(one.sum() for one in taken[3 + len(names) :])),
        )

    def update(self, pace: Pace, count: int) -> None:
        """So many updates from what is remembered, without a step; for measuring them."""
        self.networks.learning[0] = pace.learning_rate, pace.max_grad_norm, pace.max_grad_value
        self._pace[0] = tuple(pace)
        self.program.begin()
        self.program.run(self._learning_drivers, 0, count)

    def drain(self) -> None:
        """Nothing is ever under way."""
        self._meter.fold()

    def settle(self) -> None:
        """The agent's own arrays are those that this learner works on."""

    def take(self) -> None:
        """Lay the parameters out anew, after something else than an update changed them."""
        self.networks.pack()

    def state(self) -> dict[str, NDArray[Any]]:
        """The memory, the networks and optimisers, the copies and every random stream."""
        rows = self.buffer.rows[: len(self.buffer)]  # as they lie: a checkpoint writes the new ones only
        memory = named("memory", {"rows": rows, **self.buffer.bookkeeping()})
        experience = self._experience_state()
        own = {name: array.copy() for name, array in self._arrays().items()}
        return {**own, **memory, **experience}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        own = self._arrays()
        streams = own.pop("learner.rng")
        self.buffer.load_state(self._memory_of(state))
        for name, array in own.items():
            array[...] = state[name]
        if state["learner.rng"].shape == streams.shape:  # else it comes from another device
            streams[...] = state["learner.rng"]
        self._load_experience(state)
        self.take()

    def _memory_of(self, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The memory of a state; what another learner has stored frame by frame, as networks here read it."""
        memory, task, buffer = within("memory", state), self.task, self.buffer
        if (frames := task.source.stored) is None or "edges" not in memory:
            return memory
        room, factor = room_of(frames, task.source, task.config), np.float32(task.encoding.table[0]["factor"])
        own = {name: memory[name] for name in buffer.bookkeeping() if name in memory}
        return {**own, **to_observations(memory, room, buffer.rows.dtype, factor)}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        own = {
            "policy.rng": self._rng,
            "policy.noise": self._noise,
            "learner.rng": self._streams,
            "learner.updates": self._updates,
        }
        return {**own, **self.networks.arrays()}

    def _rows(self) -> Rows:
        """The rows of a batch, and where networks find what they read."""
        batch, rows = self.batch, self.buffer.rows
        stored = narrow(rows)
        columns = (
            self.drawn,
            Indexed(stored, batch.places),
            Indexed(stored, batch.lasts),
            batch.rewards,
            batch.discounts,
            batch.weights,
        )
        own = {
            name: self.drawn[name] for name in self.drawn.dtype.names or () if self.drawn.dtype[name].base == np.float32
        }
        fields = {name: array if array.ndim > 1 else array[:, None] for name, array in own.items()}
        wide = {
            "observation": Indexed(rows["observation"], batch.places),
            "next_observation": Indexed(rows["next_observation"], batch.lasts),
        }
        return Rows(self.drawn, {**fields, **wide}, self._streams, (fetch, columns))

    def _connect(self) -> None:
        """Bind the units of a step, of a batch, and the drivers that call them."""
        config = self.task.config
        self._host: HostExperience | None = None
        units = self._step_units()
        selection, book = self.buffer.selection(config.effective_batch_size)
        units |= self._batch_units(selection, book)
        table = np.zeros(UNITS, np.int64)
        for which, unit in units.items():
            table[which] = unit.frame
        self._held = units
        crews = [self._stepping(table, unit) for unit in self.program.updates]
        pairs = list(zip(self.program.crews, crews, strict=True))
        translator = driver_translator()

        def bind(driver: Any, *arguments: Any) -> BoundUnit:
            return bind_unit(driver, arguments, translator, disjoint=False)

        self._bind_learning = lambda: [bind(learn_only, *pair) for pair in pairs]
        self._bind_steps(bind, pairs)

    def _make_copies(self) -> Any:
        """The copies to learn from."""
        task, config = self.task, self.task.config
        return task.source.make_copies(config.num_envs, seed=task.seeds.environment, threads=1, workers=config.workers)

    def _step_units(self) -> dict[int, BoundUnit]:
        """The units of a step of all copies, which are a fleet or environments of Gymnasium's."""
        task = self.task
        course = Course(
            self.buffer.rows, self.buffer.counts, self._rng, self._noise, self._clock, self._exploration, self._log,
            self._reported,
        )  # fmt: skip
        if isinstance(self.envs, FleetVectorEnv):
            target: Any = self.envs.target
            return {**step_units(task, self.networks, of_fleet(self.envs.copies), course), ADVANCE: target.advance_unit}
        self._host = HostExperience(self.envs, task.head, costs=task.reads_costs)
        return step_units(task, self.networks, self._host.arrays, course)

    def _bind_steps(self, bind: Callable[..., BoundUnit], pairs: list[tuple[Any, Stepping]]) -> None:
        """Bind what an iteration calls."""
        if self._host is None:
            self._drivers = [bind(run_fleet, *pair) for pair in pairs]
        else:
            stepping = pairs[0][1]
            self._decide, self._record = bind(decide_only, stepping), bind(record_only, stepping)
            self._drivers = self._learning_drivers

    @cached_property
    def _learning_drivers(self) -> list[BoundUnit]:
        return self._bind_learning()

    def _stepping(self, table: NDArray[np.int64], unit: BoundUnit) -> Stepping:
        return Stepping(
            units=table,
            update=unit.frame,
            counts=self.buffer.counts,
            capacity=self.buffer.capacity,
            copies=group_of(self.task.config),
            clock=self._clock,
            exploration=self._exploration,
            beta=self._beta,
            updates=self._updates,
            pace=self._pace,
        )

    def _batch_units(self, selection: Selection, book: Any) -> dict[int, BoundUnit]:
        buffer, config, bind = self.buffer, self.task.config, self.networks.bind
        chosen = book, buffer.counts
        find_costs = drawn_costs if self.task.reads_costs else no_costs
        follows = narrow(buffer.rows), group_of(config), config.n_step, float(config.gamma), self.batch
        return {
            ENTER: bind(entering(selection.enter), *chosen),
            DRAW: bind(drawing(selection.draw, find_costs), *chosen, buffer.rng, self._beta, *follows, self.drawn),
            REVISE: bind(revising(selection.revise), *chosen, self.batch, self.drawn),
        }

    def _begin(self) -> None:
        """Let the first episodes begin; those of Gymnasium's do with the first step."""
        if self._host is None:
            self.envs.reset()

    def _run(self, first: int, pace: Pace) -> None:
        if self._host is None:
            self.program.run(self._drivers, first, pace.rounds)
        else:
            self._run_host(self._host, first, pace)

    def _run_host(self, host: HostExperience, first: int, pace: Pace) -> None:
        """Step by step; the threads come together where something is to be learnt."""
        copies, learning = self.task.config.num_envs, 0
        host.begin()
        for t in range(pace.rounds):
            step = first + t * copies
            ended = host.take_turn(partial(self._decide, step, 0, t), partial(self._record, 0, 0))
            due = updates_due(step + copies, copies, pace)
            if due:
                self.program.meet_anew()
                self.program.run(self._drivers, step + copies, due)
                learning += now() - ended
        counters, spent = self.program.counters[0], host.take_times()
        counters[[POLICY, ENVIRONMENT, BUFFER]] += spent
        counters[[STEPPING, LEARNING]] += sum(spent), learning
        counters[[ROUND, ROUND + TIMED]] = 1

    def _experience_state(self) -> dict[str, NDArray[Any]]:
        """The copies; what Gymnasium's environments are in the middle of cannot be saved."""
        if self._host is not None:
            return {}
        return named("fleet", self.envs.get_state())

    def _load_experience(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where the copies were; with new episodes, their seeds come from the policy's streams."""
        if self._host is None:
            self.envs.set_state(within("fleet", state))
        else:
            cut_off(self.buffer.rows, self.buffer.counts, self.task.config.num_envs)
            self._noise[...] = 0.0
            self._host.begin_anew(int(self._rng[0, 0] >> np.uint64(33)))

    def _count(self, seconds: float) -> None:
        """Add what thread 0 counted to the phases: it steps, the others wait for it, and all share the updates."""
        row = self.program.counters[0]
        learning = min(float(row[LEARNING]) * 1e-9, seconds)
        rollout, update = read([row], ROLLOUT_COUNTS, STEPPING), read([row], UPDATE_COUNTS, LEARNING)
        clear(self.program.counters)
        if rollout:
            for parent, spent, parts in (("rollout", seconds - learning, rollout), ("update", learning, update)):
                add(self.phases, parent, spent)
                add_parts(self.phases, parent, spent, parts)
