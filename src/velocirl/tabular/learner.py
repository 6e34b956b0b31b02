"""Fleet learner of tabular algorithms: a compiled fleet on one or more threads that share a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.compiler.compiling import cpu_translator, learning_translator
from velocirl.engine.compiler.counters import Meter, allocate, clear, read
from velocirl.engine.compiler.registers import as_rows
from velocirl.engine.compiler.units import BoundUnit, bind_unit
from velocirl.engine.disk.saved import named, within
from velocirl.engine.fleets.fleet import aligned, aligned_zeros
from velocirl.engine.targets.cpu import CPUTarget
from velocirl.engine.targets.threads import SPACING, run_together
from velocirl.program.counting.phases import add, add_parts
from velocirl.program.faults import fault_of_rollout
from velocirl.program.rows.recording import EPISODE
from velocirl.tabular.loop import (
    COUNTS,
    ENDED,
    ERRORS,
    FAULT,
    FAULTY_COPY,
    FAULTY_ROUND,
    FIRST_LOOK,
    KEPT,
    ROUNDS,
    TALLY,
    TICKET,
    UNITS,
    Current,
    Pace,
    Rounds,
    Rows,
    Scalars,
    moment_type,
    pace_type,
    reported,
    scalars,
    settling,
    take_rounds,
)  # fmt: skip
from velocirl.tabular.memory import Memory, places_in
from velocirl.tabular.tables.exploring import Exploring
from velocirl.tabular.tables.replicas import (
    PARTS,
    POWERS,
    Common,
    copy_of,
    exchanging,
    powers_of,
    steps_between,
    worth_copying,
)
from velocirl.tabular.tables.rules import Rule
from velocirl.tabular.tables.states import States
from velocirl.tabular.tables.table import Table, finder
from velocirl.tabular.tables.value_table import ValueTable
from velocirl.vector.native import FleetVectorEnv

EXCHANGES = 4  # per thread in a call, at least: threads wait for each other after it
CHUNKS = 16  # per thread in a call, if all are equally fast
SAVED = ("place", "window")  # fields of the current; with their streams, these determine the next steps
NO_LIMIT = 2**62


@dataclass(frozen=True)
class TabularTask:
    """Learner input: the rule, spaces, table and settings, alike for every learner."""

    rule: Rule
    exploring: Exploring
    states: States
    actions: int
    masked: bool
    memory: Memory
    table: ValueTable
    phases: dict[str, float]  # the agent's own, to which a learner adds
    report: tuple[str, ...]  # reported fields of an episode's last state

    @property
    def episode(self) -> np.dtype[Any]:
        """Record type of a finished episode."""
        return np.dtype([*EPISODE.descr, *((reported(name), np.float32) for name in self.report)])

    def scalars(self) -> Scalars:
        """Compose the functions for one environment with a dense table."""
        return scalars(self.rule, self.exploring, self.states.encode, finder(sparse=False))

    def settling(self, *, shared: bool = False) -> Callable[..., Any]:
        """Compose what follows the steps of a round; if the table is `shared`, others may add rows at the same time."""
        find = finder(self.table.sparse, shared)
        return settling(
            self.rule, self.exploring, self.states.encode, find, self.memory.remember, self.report,
            marks=self.table.marks_rows,
        )  # fmt: skip

    def current(self, count: int, streams: NDArray[np.uint64]) -> Current:
        """Allocate the arrays that `count` environments keep from round to round."""
        return Current(
            place=aligned_zeros(count, np.uint64),
            next_place=aligned_zeros(count, np.uint64),
            next_action=aligned_zeros(count, np.int32),
            ahead=aligned_zeros(count, self.table.dtype),
            coin=aligned_zeros(count, np.int8),
            rng=as_rows(streams),
            window=aligned_zeros(count, self.memory.window),
            episodes=aligned_zeros(KEPT, self.episode),
            tally=aligned_zeros(TALLY, np.float64),
            counters=allocate(1)[0],
        )


@dataclass(frozen=True)
class Outcome:
    """Result of some rounds."""

    steps: int
    error: float  # mean absolute TD error
    returns: list[float]  # of the last episodes that ended, in order of their ends
    lengths: list[int]
    reported: Mapping[str, list[float]] = field(default_factory=dict)  # reported fields of these episodes, by name


class TableLearner(Protocol):
    """Interface of learners: runs the rounds of a tabular algorithm on the agent's own table."""

    num_envs: int
    # Optional members: `fleet`, the environments if compiled and in this process; `meter`, which counts the learner's
    # time; and `drain() -> Outcome | None`, see `TabularAgent`.
    grain: int  # steps that a call should have if training lasts long enough; 0 if any number will do

    def run(self, pace: Pace, first: int) -> Outcome:
        """Take about `pace.rounds` steps in every environment; the run has taken `first` steps before them."""
        ...

    def settle(self) -> None:
        """Bring the agent's table up to date if the learner works on another."""
        ...

    def take(self) -> None:
        """Continue from the agent's table, which has been changed from outside."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what determines the next rounds, except the table."""
        ...

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the result of `state`."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class Settling:
    """Unit that learns from the steps of some environments; rebound when the table's arrays move."""

    def __init__(self, task: TabularTask, rows: Rows, current: Current, *, shared: bool = False) -> None:
        self.moment = np.zeros(1, moment_type(task.table.dtype))
        self._loop, self._rows, self._current = task.settling(shared=shared), rows, current
        self._table: Table | None = None
        self._translator = learning_translator("table")

    def at(self, table: Table) -> BoundUnit:
        """Return the unit bound to the table's current arrays."""
        if table is not self._table:
            arguments = self._rows, table, self._current, self.moment
            self._unit, self._table = bind_unit(self._loop, arguments, self._translator), table
        return self._unit

    def begin(self, table: Table, rate: float) -> None:
        """Observe and choose for the first time."""
        self.moment["rate"] = rate
        self.at(table)(0, len(self._current.place), FIRST_LOOK)


class Share:
    """One thread's environments of a fleet, and the units that take them through rounds."""

    def __init__(self, task: TabularTask, fleet: CPUTarget, thread: int, current: Current) -> None:
        self._current, self._span, copies = current, fleet.ranges[thread], fleet.shares[thread]
        nothing = {} if task.report else {"final_state": np.zeros(1, np.int8)}
        rows = Rows(**{**{name: getattr(copies, name) for name in Rows._fields}, **nothing})
        self._settling = Settling(task, rows, current, shared=len(fleet.ranges) > 1)
        self.pace = np.zeros(1, pace_type(task.table.dtype))
        self._advance = fleet.advance_unit
        self._exchange: BoundUnit | None = None
        self._units = np.zeros(UNITS, np.int64)
        self._bound: tuple[Any, ...] = ()

    def exchange(self, task: TabularTask, common: Common, own: Table) -> None:
        """Give this thread a table of its own, exchanged with the common one."""
        loop = exchange_unit(exchanging(task.actions, task.rule.sets))
        self._exchange = bind_unit(loop, (common, own), learning_translator("table"))

    def begin(self, table: Table, rate: float) -> None:
        """Observe and choose for the first time."""
        self._settling.begin(table, rate)

    def rounds(self, table: Table, work: NDArray[np.int64]) -> BoundUnit:
        """Return the unit that takes rounds, bound to the table's current arrays."""
        if self._bound[:2] != (id(table), id(work)):
            units = self._advance, self._settling.at(table), self._exchange
            self._units[:] = [0 if unit is None else unit.frame for unit in units]
            tally, counters, moment = self._current.tally, self._current.counters, self._settling.moment
            rounds = Rounds(self._units, *self._span, table.counts, tally, counters, self.pace, moment, work)
            # Strict, so that rates equal those computed by NumPy.
            translator = cpu_translator("rounds", double=False)
            self._rounds = bind_unit(take_rounds, (rounds,), translator, disjoint=False)
            self._bound = id(table), id(work), table, work, units  # keeps the objects at these addresses alive
        return self._rounds


class FleetLearner:
    """Learner on a compiled fleet, divided among threads that update one table without locks."""

    def __init__(self, task: TabularTask, envs: FleetVectorEnv, seed: int) -> None:
        self._lesson, self.fleet, self._table = task, envs, task.table
        self.num_envs = envs.num_envs
        target: Any = envs.target
        fleet: CPUTarget = target
        threads = len(fleet.ranges)
        self._rng = aligned(random.streams(seed, envs.num_envs))
        self.current = [task.current(stop - start, self._rng[start:stop]) for start, stop in fleet.ranges]
        self.meter = meter_of(task.phases, self.current)
        self._work = np.zeros(8, np.int64)
        self._shares = [Share(task, fleet, thread, own) for thread, own in enumerate(self.current)]
        copied = threads > 1 and worth_copying(self._table)
        self._between = steps_between(self._table) if copied else 0
        self.grain = EXCHANGES * self._between * threads
        self._tables = self._make_tables() if copied else []
        for thread in range(threads):
            self._rounds(thread)  # compiled with all else that is needed, at the environments' first reset
        envs.reset()
        self._begun = False

    def run(self, pace: Pace, first: int) -> Outcome:
        """Let the threads take rounds until all are taken. A full table grows in between. Returns the result."""
        begun = perf_counter()
        for current in self.current:
            current.tally[:] = 0.0
        if not self._begun:
            table = self._table.grow(2 * self.num_envs)
            for share in self._shares:
                share.begin(table, pace.rate)
            self._begun = True
        threads = len(self._shares)
        wanted, done = pace.rounds * threads, 0
        for _, common in self._tables:
            common.powers[:] = powers_of(1.0 - pace.step, self._table.sets, self._table.dtype)
        while done < wanted:
            # A thread in the middle of a round when the table is full enough finishes the round.
            self._table.grow(4 * self.num_envs)
            fullest = self._table.capacity - 2 * self.num_envs if self._table.sparse else NO_LIMIT
            self._work[TICKET] = done
            taken = pace.shared_by(threads)._replace(chunk=self._chunk(wanted - done), fullest=fullest)
            for share in self._shares:
                share.pace[0] = tuple(taken)
            run_together([[(self.take_share, (thread,))] for thread in range(threads)])
            if any(current.tally[FAULT] for current in self.current):
                break
            done = int(sum(current.tally[ROUNDS] for current in self.current))
        self.meter.add(perf_counter() - begun)
        return outcome_of(self.current, first, self.num_envs, self._lesson.report)

    def remembered(self) -> NDArray[np.uint64]:
        """Return the rows of steps that are still to be learned from."""
        return np.concatenate([places_in(current.window) for current in self.current])

    def take_share(self, thread: int) -> None:
        """Take one thread's part of some rounds."""
        self._rounds(thread)(0, 0)

    def settle(self) -> None:
        """Do nothing: after a call, all that threads learned is in the agent's table."""

    def take(self) -> None:
        """Recreate the threads' copies of the table; if its rows may have moved, look them up again."""
        for own, common in self._tables:
            own.rows[:] = common.base.rows[:] = self._table.arrays.rows
        if self._table.sparse:
            self._begun = False
            for current in self.current:
                current.window[:] = np.zeros((), current.window.dtype)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the environments' states, their pending steps and random streams."""
        if not self._begun:
            return {}
        own = {f"current.{name}": np.concatenate([getattr(one, name) for one in self.current]) for name in SAVED}
        fleet = named("fleet", self.fleet.get_state())
        return {**own, **fleet, "fleet.action": np.array(self.fleet.copies.action), "policy.rng": self._rng.copy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved state."""
        if "policy.rng" not in state:
            return
        fleet = within("fleet", state)
        action = fleet.pop("action")
        self.fleet.set_state(fleet)
        self.fleet.copies.action[:] = action
        self._rng[:] = state["policy.rng"]
        first = 0
        for current in self.current:
            stop = first + len(current.place)
            for name in SAVED:
                getattr(current, name)[:] = state[f"current.{name}"][first:stop]
            first = stop
        self._begun = True

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def _make_tables(self) -> list[tuple[Table, Common]]:
        """Create a table for each thread, and what is needed to exchange it."""
        table, threads, made = self._table.arrays, len(self._shares), []
        doors = np.zeros(PARTS * SPACING, np.int64)
        for thread, share in enumerate(self._shares):
            powers = np.ones(POWERS, self._table.dtype)
            own, common = copy_of(table), Common(table, copy_of(table), powers, doors, PARTS * thread // threads)
            share.exchange(self._lesson, common, own)
            made.append((own, common))
        return made

    def _rounds(self, thread: int) -> BoundUnit:
        """Return the unit that takes a thread's part, bound to the table it updates."""
        table = self._tables[thread][0] if self._tables else self._table.arrays
        return self._shares[thread].rounds(table, self._work)

    def _chunk(self, rounds: int) -> int:
        """Return the rounds a thread takes at a time: enough to hide the cost of exchanges, at most its part."""
        threads = len(self._shares)
        least = max(self._between * threads // self.num_envs, rounds // (threads * CHUNKS), 1)
        return min(least, -(-rounds // threads))


def typed(pace: Pace, dtype: np.dtype[Any]) -> Pace:
    """Convert a pace to the types that a loop was compiled for."""
    kind: Callable[..., Any] = dtype.type
    single: Any = np.float32
    return Pace(
        int(pace.rounds), int(pace.chunk), int(pace.fullest), kind(pace.step), kind(pace.step_change),
        single(pace.rate), single(pace.rate_change), kind(pace.gamma),
    )  # fmt: skip


def exchange_unit(exchange: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an exchange of tables as a unit of ((common, table),)."""

    def run(arguments, first, stop, place):  # noqa: ARG001 - as every unit
        common, table = arguments
        exchange(common, table)
        return 0

    return run


def meter_of(phases: dict[str, float], several: Sequence[Current]) -> Meter:
    """Create a meter that divides the seconds of calls by the counters of `several`."""
    rows = [current.counters for current in several]

    def share_out(seconds: float) -> None:
        spent = read(rows, COUNTS)
        clear(rows)
        if not any(spent.values()):
            return
        update = seconds * spent["update"] / sum(spent.values())
        add(phases, "rollout", seconds - update)
        del spent["update"]
        add_parts(phases, "rollout", seconds - update, spent)
        add(phases, "update", update)

    return Meter(phases, "rollout", share_out)


def outcome_of(several: Sequence[Current], first: int, num_envs: int, report: Sequence[str] = ()) -> Outcome:
    """Combine the tallies of a call into an outcome; raise a fault if there was one."""
    steps, errors, offset = 0, 0.0, 0
    episodes: list[Any] = []
    for current in several:
        tally = current.tally
        if tally[FAULT]:
            copy, t = int(tally[FAULTY_COPY]), int(tally[FAULTY_ROUND]) // len(several)
            raise fault_of_rollout(int(tally[FAULT]), offset + copy, t, first, num_envs)
        offset += len(current.place)
        steps += int(tally[ROUNDS]) * len(current.place)
        errors += float(tally[ERRORS])
        ended = int(tally[ENDED])
        order = np.arange(max(ended - KEPT, 0), ended) % KEPT
        episodes.append(current.episodes[order])
    last = np.concatenate(episodes)
    last = last[np.argsort(last["step"], kind="stable")]
    told = {name: last[reported(name)].tolist() for name in report}
    return Outcome(steps, errors / max(steps, 1), last["total"].tolist(), last["length"].tolist(), told)
