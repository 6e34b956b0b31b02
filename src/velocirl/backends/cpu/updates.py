"""Updates on CPU threads: sampling batches and learning from them, in one compiled iteration.

The calling thread samples the batches; their rows are cut into shares (see `driver`). Where several processes train
together, each samples its part of a batch from its own replay buffer. All-reduced sums are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.driver import driver_translator
from velocirl.backends.cpu.lowering import Iteration, Unit, blocks_of_rows
from velocirl.backends.cpu.memory import NativeMemory
from velocirl.backends.cpu.networks import ThreadedNetworks
from velocirl.backends.cpu.replay_units import (
    begin_update,
    call_each,
    drawing,
    drawn_costs,
    entering,
    fetch,
    fetch_with_next,
    no_costs,
    revising,
)  # fmt: skip
from velocirl.backends.cpu.update import Rows, ThreadedProgram
from velocirl.buffers.records import drawn_type, narrow
from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed
from velocirl.engine.compiler.counters import Meter, clear, read
from velocirl.engine.compiler.python_units import PythonUnit
from velocirl.engine.compiler.units import BoundUnit, bind_unit
from velocirl.program.clock import MINIBATCHES
from velocirl.program.counting.phases import LEARNING, PLACES_OF_TIME, UPDATE_COUNTS, add_parts
from velocirl.program.iteration import Operations
from velocirl.program.pace import PACE, Pace
from velocirl.program.reducing import Share
from velocirl.program.replay import updates
from velocirl.program.sharing import even_shares
from velocirl.program.task import Task


class Batch(NamedTuple):
    """One sampled batch."""

    places: NDArray[np.int64]  # (batch,) indices of the records
    lasts: NDArray[np.int64]  # (batch,) indices of the records with the next observation and mask
    rewards: NDArray[np.float32]  # (batch,) discounted sums over up to n steps
    discounts: NDArray[np.float32]  # (batch,) of the bootstrap value; 0 after a terminal state
    weights: NDArray[np.float32]  # (batch,) importance weights of the losses
    errors: NDArray[np.float32]  # (batch,) found by the update


class ThreadedUpdates:
    """Updates from sampled batches of a replay buffer; independent of who fills the buffer."""

    decisions: Sequence[tuple[Any, int]] = ()  # units that decide by episodes before updates, and their indices

    def __init__(self, task: Task, networks: ThreadedNetworks, ring: NativeMemory, share: Share) -> None:
        """`share` is the range of a batch's rows that this process samples."""
        self.task, self.networks, self.ring = task, networks, ring
        whole = task.config.effective_batch_size  # accumulated in one batch: blocks need little memory
        self._first, stop = share
        self._rest, batch = whole - stop, stop - self._first
        self.streams = random.streams(task.seeds.learner + 1, batch, self._first)  # one stream per row of a batch
        places, numbers = np.zeros((2, batch), np.int64), np.zeros((4, batch), np.float32)
        self.batch = Batch(places[0], places[1], numbers[0], numbers[1], numbers[2], numbers[3])
        self.drawn = np.zeros(batch, drawn_type(task.action, task.fields))
        self.pace, self._updates, self._beta = np.zeros(1, PACE), np.zeros(1, np.int64), np.zeros(1)
        self._before = 0  # updates before this iteration
        rows = self._rows()
        self.program = ThreadedProgram(task.program, networks, lambda share: rows)  # noqa: ARG005 - all alike
        self.program.rows[:] = even_shares(batch, networks.shares)
        job = self.program.job[0]
        job["batch"], job["begins"], job["weight"] = whole, 1, whole
        ring.count_group = lambda: self._units["enter"](0, 0)
        self._meter = Meter(task.phases, "update/forward", self._count)

    @property
    def done(self) -> int:
        """Number of updates of the run."""
        return int(self._updates[0])

    def begin(self, pace: Pace, step: int) -> None:  # noqa: ARG002 - an iteration counts its steps
        """Begin an iteration."""
        self.pace[0] = tuple(pace)
        self.networks.set_rates(pace.learning_rate, pace.max_grad_norm, pace.max_grad_value)
        self.program.begin()
        self.networks.begin()
        self._before = self.done

    def end(self) -> None:
        """End an iteration: record its number of updates for the report."""
        self.networks.clock.counts[0, MINIBATCHES] = self.done - self._before

    def run(self, count: int, step: int) -> None:
        """Run `count` updates; `step` is the run's step count."""
        updates = self._updating
        updates["step"], updates["due"] = step, count
        self.networks.team.run(updates.start, self.program.tuner, 0, 0)

    def iteration(self, operations: Operations, units: Mapping[str, Unit]) -> Iteration:
        """Lower an iteration with updates; `units` are those of its steps."""
        every, counters = {**units, **self._units}, self.program.counters[0]
        blocks, items = blocks_of_rows(self.ring.group)
        return Iteration(operations, every, PLACES_OF_TIME, counters, blocks, items, batch=len(self.drawn))

    @property
    def operations(self) -> Operations:
        """The operations of the updates that are due."""
        return updates(decides=bool(self.decisions), levels=self._levels)

    def count(self, seconds: float) -> None:
        """Count `seconds` of updates without environment steps."""
        self.program.counters[0][LEARNING] += int(seconds * 1e9)
        self._meter.add(seconds)

    def fold(self) -> None:
        """Bring the phases up to date."""
        self._meter.fold()

    def _count(self, seconds: float) -> None:
        parts = read([self.program.counters[0]], UPDATE_COUNTS, LEARNING)
        clear(self.program.counters)
        add_parts(self.task.phases, "update", seconds, parts)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the random streams, and the number of updates."""
        own = {"learner.rng": self.streams.copy(), "learner.updates": self._updates.copy()}
        return {**own, **self.ring.stream_state()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved `state`."""
        if state["learner.rng"].shape == self.streams.shape:  # else saved on another device
            self.streams[...] = state["learner.rng"]
        self.ring.load_streams(state)
        self._updates[...] = state["learner.updates"]

    @cached_property
    def _updating(self) -> Iteration:
        """Iteration of updates without environment steps."""
        return self.iteration(self.operations, {})

    @property
    def _levels(self) -> bool:
        """True if ranks have to normalize the weights of a batch together."""
        return self.ring.prioritised is not None and self.task.reducer.size > 1

    def _level(self) -> None:
        """Normalize the weights of a batch by the largest over all ranks, not only over this rank's rows.

        The expected number of samples of a record in a batch is rows * chance. The record with the fewest has weight 1.
        """
        buffer, weights = self.ring.prioritised, self.batch.weights
        assert buffer is not None  # noqa: S101 - or nobody calls
        rate = len(weights) * buffer.chance(int(self.batch.places[np.argmax(weights)]))
        weights *= np.float32((self.ring.compare_priorities(rate) / rate) ** self._beta[0])

    @cached_property
    def _units(self) -> dict[str, Any]:
        """Units of the updates, and the unit that enters records into the ring."""
        buffer, config, bind = self.ring.buffer, self.task.config, self.networks.bind
        selection, book = buffer.selection(len(self.drawn))
        chosen = book, buffer.counts
        find_costs = drawn_costs if self.task.reads_costs else no_costs
        follows = narrow(buffer.rows), self.ring.group, config.n_step, self.pace, self.batch
        others = self._first, self._rest
        draw = drawing(selection.draw, find_costs)
        units: dict[str, Any] = {
            "enter": bind(entering(selection.enter), *chosen, buffer.capacity, self.ring.group),
            "begin_update": bind(begin_update, self.pace, self._beta, self._updates),
            "draw": bind(draw, *chosen, buffer.rng, others, self._beta, *follows, self.drawn),
            "update": self.program.update,
            "end_update": bind(
                revising(selection.revise), *chosen, self.batch, self.drawn, self._updates, self.program.outcome
            ),
        }
        if self.decisions:
            units["decide"] = self._calling(self.decisions)
        if self._levels:
            units["level"] = self._calling([(self.python_unit(self._level), 0)])
        return units

    def python_unit(self, function: Callable[[], None]) -> PythonUnit:
        """Make a unit of a function of Python; what it raises is raised when compiled code has returned."""
        self.networks.team.outside.append(unit := PythonUnit(lambda *_: function()))
        return unit

    def _calling(self, units: Sequence[tuple[Any, int]]) -> BoundUnit:
        """Bind calls of units. Where one fails, nothing more is learned."""
        frames = np.array([(unit.frame, stop) for unit, stop in units], np.int64)
        return bind_unit(call_each, (frames, self.program.outcome), driver_translator(), disjoint=False)

    def _rows(self) -> Rows:
        """Return the rows of a batch, with the columns that networks read."""
        batch, rows = self.batch, self.ring.rows
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
        found = fetch_with_next if self.task.reads_next else fetch
        return Rows(self.drawn, {**fields, **wide}, self.streams, (found, columns))
