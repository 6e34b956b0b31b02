"""Learning from a memory on CPU threads: steps, memory and updates are one compiled loop.

Thread 0 steps the copies, remembers and draws the batches; the others wait until there is one to learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.making import make_buffer
from velocirl.buffers.n_step import cut_off, follow
from velocirl.buffers.records import drawn_type, narrow, transition_type
from velocirl.buffers.replay import Selection, written
from velocirl.engine import random
from velocirl.engine.clock import now
from velocirl.engine.columns import Indexed, Local, Ringed, Shared
from velocirl.engine.indexing import index_loop, row_loop
from velocirl.engine.threads import run_together
from velocirl.engine.units import BoundUnit, bind_unit, call_unit
from velocirl.learners.acting import acting, random_action
from velocirl.learners.block.driver import FAULT, driver_translator, together, wait
from velocirl.learners.block.networks import BlockNetworks, forward_unit
from velocirl.learners.block.program import BlockProgram, Rows
from velocirl.learners.commands import command_for
from velocirl.learners.counters import TIMED, TIMING, Meter, clear, glance, lap, read, start, turn
from velocirl.learners.experience import Experience, of_fleet
from velocirl.learners.faults import check_faults, check_update, fitting_all
from velocirl.learners.host import HostExperience
from velocirl.learners.learner import Report, latest
from velocirl.learners.pace import PACE, Pace, beta_at, exploration_at, updates_due
from velocirl.learners.phases import (
    BUFFER,
    ENVIRONMENT,
    EVERY_ROUND,
    EVERY_UPDATE,
    LEARNING,
    POLICY,
    ROLLOUT_COUNTS,
    ROUND,
    SAMPLE,
    STEPPING,
    UPDATE,
    UPDATE_COUNTS,
    WAITING,
    add,
    add_parts,
)  # fmt: skip
from velocirl.learners.recording import STEP, Log, Ring, Sight, look, remember
from velocirl.learners.task import Task
from velocirl.networks.mlp import ROWS
from velocirl.optim.optimisers import optimiser_from
from velocirl.vector.native import FleetVectorEnv

# The units of a step and of a batch, by their places.
LOOK, RANDOM, FORWARD, ACT, COMMAND, REMEMBER, ENTER, DRAW, REVISE, ADVANCE, UNITS = range(11)


class Stepping(NamedTuple):
    """What the drivers of steps and batches need; the units are those of thread 0, who steps."""

    units: NDArray[np.int64]  # (UNITS,) their frames
    update: int  # the frame of the thread's
    counts: NDArray[np.int64]  # of the ring
    capacity: int
    copies: int
    clock: NDArray[np.int64]  # of which STEP counts the steps of the iteration
    exploration: NDArray[np.float32]  # (1,)
    beta: NDArray[np.float64]  # (1,)
    updates: NDArray[np.int64]  # (1,) of the run
    pace: NDArray[Any]  # (1,) PACE


def call(stepping, which, first, stop):
    """Call one of the units of a step."""
    return call_unit(stepping.units[which], first, stop, 0)


def decide(stepping, step, t):
    """All copies look, and act: at random before learning starts, which asks no network."""
    pace = stepping.pace[0]
    stepping.clock[STEP] = t
    stepping.exploration[0] = exploration_at(step, pace)
    for begin in range(0, stepping.copies, ROWS):
        end = min(begin + ROWS, stepping.copies)
        call(stepping, LOOK, begin, end)
        if step < pace.learning_starts:
            call(stepping, RANDOM, begin, end)
        else:
            call(stepping, FORWARD, begin, end)
            call(stepping, ACT, begin, end)
        call(stepping, COMMAND, begin, end)


def record(stepping):
    """Complete the records of a step."""
    first, copies = stepping.counts[0], stepping.copies
    call(stepping, REMEMBER, 0, copies)
    written(stepping.counts, stepping.capacity, copies)
    call(stepping, ENTER, first, first + copies)


def learn(crew, stepping, step, due):
    """So many updates after a step of all copies, at which the run has taken `step` steps; called by each thread."""
    team, counters = crew.team, crew.counters
    thread = team.thread
    batch = crew.job[0].batch
    first, stop = batch * thread // team.threads, batch * (thread + 1) // team.threads
    number = stepping.updates[0]
    timed, since = False, 0
    for _ in range(due):
        if crew.outcome[FAULT] != 0.0:
            break
        number += 1
        timed = turn(counters, UPDATE, EVERY_UPDATE)
        counters[TIMING] = timed
        since = start(counters, UPDATE, timed)
        if thread == 0:
            stepping.beta[0] = beta_at(step, stepping.pace[0])
            call(stepping, DRAW, 0, batch)
        since = lap(counters, SAMPLE, since, timed)
        wait(team, counters, since, timed)
        call_unit(stepping.update, first, stop, number)
        since = glance(timed)
        if thread == 0 and crew.outcome[FAULT] == 0.0:
            call(stepping, REVISE, 0, batch)
            stepping.updates[0] = number
        since = lap(counters, SAMPLE, since, timed)
    # The others read the number of updates when they come here again, which must be after this.
    together(team)
    lap(counters, WAITING, since, timed)


def run_fleet(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """An iteration of one thread: `stop` steps of all copies after the first so many of the run."""
    crew, stepping = arguments
    counters, begun = crew.counters, glance(True)
    learnt, step = counters[LEARNING], first
    for t in range(stop):
        if crew.team.thread == 0:
            timed = turn(counters, ROUND, EVERY_ROUND)
            since = start(counters, ROUND, timed)
            decide(stepping, step, t)
            since = lap(counters, POLICY, since, timed)
            call(stepping, ADVANCE, 0, stepping.copies)
            since = lap(counters, ENVIRONMENT, since, timed)
            record(stepping)
            lap(counters, BUFFER, since, timed)
        step += stepping.copies
        due = updates_due(step, stepping.copies, stepping.pace[0])
        if due > 0:
            since = glance(True)
            learn(crew, stepping, step, due)
            lap(counters, LEARNING, since, True)
    # What was not learning was stepping: that takes no look at the clock in each round.
    lap(counters, STEPPING, begun + counters[LEARNING] - learnt, True)
    return 0


def decide_only(arguments, first, stop, place):  # noqa: ARG001
    """The side of a step that comes before the environment's, where that steps in Python: step number `place`."""
    decide(arguments[0], first, place)
    return 0


def record_only(arguments, first, stop, place):  # noqa: ARG001
    """The side of a step that comes after the environment's."""
    record(arguments[0])
    return 0


def learn_only(arguments, first, stop, place):  # noqa: ARG001
    """`stop` updates of one thread, at which the run has taken `first` steps."""
    learn(arguments[0], arguments[1], first, stop)
    return 0


def drawing(select: Callable[..., Any]) -> Callable[..., Any]:
    """`draw(arguments, first, stop, place)`: random records for a batch, and what followed them."""

    def draw(arguments, first, stop, place):  # noqa: ARG001
        book, counts, rng, beta, rows, copies, n_step, gamma, batch = arguments
        select(book, counts, rng, beta[0], batch.places, batch.weights)
        for b in range(first, stop):
            reward, discount, last = follow(rows, counts, copies, batch.places[b], n_step, gamma)
            batch.rewards[b] = reward
            batch.discounts[b] = discount
            batch.lasts[b] = last
        return 0

    return draw


def entering(enter: Callable[..., Any]) -> Callable[..., Any]:
    """`enter(arguments, first, stop, place)`: records were written to these places."""

    def run(arguments, first, stop, place):  # noqa: ARG001
        book, counts = arguments
        enter(book, counts, first, stop - first)
        return 0

    return run


def revising(revise: Callable[..., Any]) -> Callable[..., Any]:
    """`revise(arguments, first, stop, place)`: what the update found of the records of a batch."""

    def run(arguments, first, stop, place):  # noqa: ARG001
        book, counts, batch, drawn = arguments
        for b in range(first, stop):
            batch.errors[b] = drawn[b].error
        revise(book, counts, batch.places, batch.errors)
        return 0

    return run


def fetch(row, stored, last, reward, discount, weight):
    """A record that was drawn becomes a row of the batch."""
    row.reward = reward
    row.discount = discount
    row.weight = weight
    for k in range(len(row.action)):
        row.action[k] = stored.action[k]
    for k in range(len(row.mask)):
        row.mask[k] = stored.mask[k]
        row.next_mask[k] = last.next_mask[k]


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
        self.envs = task.source.make_copies(copies, seed=task.seeds.environment, threads=1, workers=config.workers)
        self._meter = Meter(self.phases, "rollout", self._count)
        self._rng = random.streams(task.seeds.policy, copies)
        self._streams = random.streams(task.seeds.learner + 1, config.batch_size)  # a stream for each row of a batch
        self._noise = np.zeros((copies, task.head.action_size), np.float32)
        kind = transition_type(task.encoding.inputs, task.action)
        self.buffer = make_buffer(config, kind, task.seeds.learner)
        self.networks = BlockNetworks(task, optimiser_from(config.optimiser), threads)
        places, numbers = np.zeros((2, config.batch_size), np.int64), np.zeros((4, config.batch_size), np.float32)
        self.batch = Batch(places[0], places[1], numbers[0], numbers[1], numbers[2], numbers[3])
        self.drawn = np.zeros(config.batch_size, drawn_type(task.action, task.fields))
        ends = (1, most_steps, copies)
        self._log = Log(np.zeros(ends, np.int32), np.zeros(ends, np.float32), np.zeros(ends, np.int32),
                        np.zeros(copies, np.int32))  # fmt: skip
        self._updates, self._pace = np.zeros(1, np.int64), np.zeros(1, PACE)
        self._clock, self._exploration, self._beta = np.zeros(1, np.int64), np.zeros(1, np.float32), np.zeros(1)
        rows = self._rows()
        self.program = BlockProgram(task.program, self.networks, lambda thread: rows, threads)  # noqa: ARG005 - all alike
        for job in self.program.jobs:
            job["batch"], job["begins"], job["weight"] = config.batch_size, 1, config.batch_size
        self._connect()
        if self._host is None:
            self.envs.reset()
        self.take()

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
        stretch = slice(schedule.rounds)
        returns, lengths = latest(log.ends[0, stretch], log.returns[0, stretch], log.lengths[0, stretch], self._recent)
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
        )

    def update(self, pace: Pace, count: int) -> None:
        """So many updates from what is remembered, without a step; for measuring them."""
        self.networks.learning[0] = pace.learning_rate, pace.max_grad_norm, pace.max_grad_value
        self._pace[0] = tuple(pace)
        self.program.begin()
        run_together([[(driver, (0, count))] for driver in self._learning_drivers])

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
        memory = {f"memory.{name}": array for name, array in {"rows": rows, **self.buffer.bookkeeping()}.items()}
        own = {name: array.copy() for name, array in self._arrays().items()}
        return {**own, **memory, **self._experience_state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        own = self._arrays()
        streams = own.pop("learner.rng")
        fitting_all(state, own)
        self.buffer.load_state(
            {name.removeprefix("memory."): array for name, array in state.items() if name.startswith("memory.")}
        )
        for name, array in own.items():
            array[...] = state[name]
        if state["learner.rng"].shape == streams.shape:  # else it comes from another device
            streams[...] = state["learner.rng"]
        self._load_experience(state)
        self.take()

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
        task, config = self.task, self.task.config
        self._host: HostExperience | None = None
        if isinstance(self.envs, FleetVectorEnv):
            experience = of_fleet(self.envs.copies)
        else:
            self._host = HostExperience(self.envs, task.head)
            experience = self._host.arrays
        units = self._step_units(experience)
        selection, book = self.buffer.selection(config.batch_size)
        units |= self._batch_units(selection, book)
        if self._host is None:
            target: Any = self.envs.target
            units[ADVANCE] = target.advance_unit
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
        if self._host is None:
            self._drivers = [bind(run_fleet, *pair) for pair in pairs]
        else:
            self._decide, self._record = bind(decide_only, crews[0]), bind(record_only, crews[0])
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
            copies=self.task.config.num_envs,
            clock=self._clock,
            exploration=self._exploration,
            beta=self._beta,
            updates=self._updates,
            pace=self._pace,
        )

    def _step_units(self, experience: Experience) -> dict[int, BoundUnit]:
        task, networks, buffer = self.task, self.networks, self.buffer
        work = networks.own_work(task.acting, 0)
        inputs = work.values[: ROWS * networks.input_row(task.acting)].reshape(ROWS, -1)[:, : task.encoding.inputs]
        centre = np.zeros(task.encoding.inputs, np.float32)  # nothing is normalised
        sight = Sight(experience.observation, experience.final, task.encoding.table, centre, centre)
        stored = narrow(buffer.rows)
        ring = Ring(
            rows=stored,
            observations=buffer.rows["observation"],
            next_observations=buffer.rows["next_observation"],
            counts=buffer.counts,
            noise=self._noise,
            mask=experience.mask,
            clock=self._clock,
        )
        known = {
            task.acting: Local(work.output),
            "row": Ringed(stored, buffer.counts),
            "mask": experience.mask,
            "rng": self._rng,
            "exploration": Shared(self._exploration),
            "noise": self._noise,
            "settings": Shared(task.settings),
        }
        columns = tuple(known[name] for name in task.act.arguments)
        command, table = command_for(task.source.action_space)
        plan = networks.network(task.acting).plan
        bind, functions = networks.bind, networks.functions(task.acting)
        random_columns = known["row"], known["mask"], known["rng"]
        return {
            LOOK: bind(index_loop(look), sight, inputs, ring, self._log),
            RANDOM: bind(row_loop(random_action, task.head), *random_columns),
            FORWARD: bind(forward_unit(functions), plan, work, 1, name=task.acting),
            ACT: bind(index_loop(acting(task.act, task.head)), columns, work.output, self._log, self._clock),
            COMMAND: bind(row_loop(command), experience.action, known["row"], Shared(table)),
            REMEMBER: bind(index_loop(remember), sight, experience.told, ring, self._log),
        }

    def _batch_units(self, selection: Selection, book: Any) -> dict[int, BoundUnit]:
        buffer, config, bind = self.buffer, self.task.config, self.networks.bind
        chosen = book, buffer.counts
        follows = narrow(buffer.rows), config.num_envs, config.n_step, float(config.gamma), self.batch
        return {
            ENTER: bind(entering(selection.enter), *chosen),
            DRAW: bind(drawing(selection.draw), *chosen, buffer.rng, self._beta, *follows),
            REVISE: bind(revising(selection.revise), *chosen, self.batch, self.drawn),
        }

    def _run(self, first: int, pace: Pace) -> None:
        if self._host is None:
            run_together([[(driver, (first, pace.rounds))] for driver in self._drivers])
        else:
            self._run_host(self._host, first, pace)

    def _run_host(self, host: HostExperience, first: int, pace: Pace) -> None:
        """Step by step; the threads come together where something is to be learnt."""
        copies, spent, learning = self.task.config.num_envs, np.zeros(3, np.int64), 0
        begun = now()
        host.begin()
        spent[1] = now() - begun
        for t in range(pace.rounds):
            step = first + t * copies
            moments = [now()]
            self._decide(step, 0, t)
            moments.append(now())
            host.step()
            moments.append(now())
            self._record(0, 0)
            moments.append(now())
            spent += np.diff(moments)
            due = updates_due(step + copies, copies, pace)
            if due:
                self.program.meet_anew()
                run_together([[(driver, (step + copies, due))] for driver in self._drivers])
                learning += now() - moments[-1]
        counters = self.program.counters[0]
        counters[[POLICY, ENVIRONMENT, BUFFER]] += spent
        counters[[STEPPING, LEARNING]] += spent.sum(), learning
        counters[[ROUND, ROUND + TIMED]] = 1

    def _experience_state(self) -> dict[str, NDArray[Any]]:
        """The copies; what Gymnasium's environments are in the middle of cannot be saved."""
        if self._host is not None:
            return {}
        return {f"fleet.{name}": array for name, array in self.envs.get_state().items()}

    def _load_experience(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where the copies were; with new episodes, their seeds come from the policy's streams."""
        if self._host is None:
            own = {name.removeprefix("fleet."): array for name, array in state.items() if name.startswith("fleet.")}
            self.envs.set_state(own)
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
