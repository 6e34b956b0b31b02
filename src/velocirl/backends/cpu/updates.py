"""Updates on CPU threads: batches are drawn and learned from in one compiled iteration.

The calling thread draws the batches, whose rows are cut into shares (see `driver`). Where several processes train
together, each draws its part of a batch from its own memory, and the sums over all are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.driver import driver_translator
from velocirl.backends.cpu.lowering import Iteration, Unit, blocks_of_rows
from velocirl.backends.cpu.memory import NativeMemory
from velocirl.backends.cpu.networks import BlockNetworks
from velocirl.backends.cpu.replay_units import (
    begin_update,
    call_unit_once,
    drawing,
    drawn_costs,
    entering,
    fetch,
    fetch_with_next,
    no_costs,
    revising,
)  # fmt: skip
from velocirl.backends.cpu.update import BlockProgram, Rows
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

    places: NDArray[np.int64]  # (batch,) of the records
    lasts: NDArray[np.int64]  # (batch,) of those whose next observation and mask count
    rewards: NDArray[np.float32]  # (batch,) of up to n steps
    discounts: NDArray[np.float32]  # (batch,) of what follows; 0 where nothing does
    weights: NDArray[np.float32]  # (batch,) of the losses
    errors: NDArray[np.float32]  # (batch,) what the update found


class BlockUpdates:
    """Draws batches from a replay buffer and learns from them; who fills the buffer is not known here."""

    decide: Callable[[], None] | None = None  # called before updates, where something is decided by episodes

    def __init__(self, task: Task, networks: BlockNetworks, ring: NativeMemory, share: Share) -> None:
        """`share` are the rows of a batch that this process draws, of all that train together."""
        self.task, self.networks, self.ring = task, networks, ring
        whole = task.config.effective_batch_size  # blocks are small: here it is as one batch that gradients add up
        self._first, stop = share
        self._rest, batch = whole - stop, stop - self._first
        self.streams = random.streams(task.seeds.learner + 1, batch, self._first)  # a stream for each row of a batch
        places, numbers = np.zeros((2, batch), np.int64), np.zeros((4, batch), np.float32)
        self.batch = Batch(places[0], places[1], numbers[0], numbers[1], numbers[2], numbers[3])
        self.drawn = np.zeros(batch, drawn_type(task.action, task.fields))
        self.pace, self._updates, self._beta = np.zeros(1, PACE), np.zeros(1, np.int64), np.zeros(1)
        self._before = 0  # updates before this iteration
        rows = self._rows()
        self.program = BlockProgram(task.program, networks, lambda share: rows)  # noqa: ARG005 - all alike
        self.program.rows[:] = even_shares(batch, networks.shares)
        job = self.program.job[0]
        job["batch"], job["begins"], job["weight"] = whole, 1, whole
        ring.count_group = lambda: self._units["enter"](0, 0)
        self._meter = Meter(task.phases, "update/forward", self._count)

    @property
    def done(self) -> int:
        """Updates of the run."""
        return int(self._updates[0])

    def begin(self, pace: Pace, step: int) -> None:  # noqa: ARG002 - an iteration counts its steps
        """Begin an iteration."""
        self.pace[0] = tuple(pace)
        self.networks.set_rates(pace.learning_rate, pace.max_grad_norm, pace.max_grad_value)
        self.program.begin()
        self.networks.begin()
        self._before = self.done

    def end(self) -> None:
        """End an iteration: count its updates for the report."""
        self.networks.clock.counts[0, MINIBATCHES] = self.done - self._before

    def run(self, count: int, step: int) -> None:
        """Run `count` updates, when the run has taken `step` steps."""
        updates = self._updating
        updates["step"], updates["due"] = step, count
        self.networks.team.run(updates.start, self.program.tuner, 0, 0)

    def iteration(self, operations: Operations, units: Mapping[str, Unit]) -> Iteration:
        """Lower an iteration with updates, given the units of its steps."""
        every, counters = {**units, **self._units}, self.program.counters[0]
        blocks, items = blocks_of_rows(self.ring.group)
        return Iteration(operations, every, PLACES_OF_TIME, counters, blocks, items, batch=len(self.drawn))

    @property
    def operations(self) -> Operations:
        """The operations of the updates that are due."""
        return updates(decides=self.decide is not None, levels=self._levels)

    def count(self, seconds: float) -> None:
        """Count `seconds` of updates without steps."""
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
        """Continue from what `state` gave."""
        if state["learner.rng"].shape == self.streams.shape:  # else it comes from another device
            self.streams[...] = state["learner.rng"]
        self.ring.load_streams(state)
        self._updates[...] = state["learner.updates"]

    @cached_property
    def _updating(self) -> Iteration:
        """Updates alone."""
        return self.iteration(self.operations, {})

    @property
    def _levels(self) -> bool:
        """Return whether ranks have to agree on the weights of a batch."""
        return self.ring.prioritised is not None and self.task.reducer.size > 1

    def _level(self) -> None:
        """Let weights of a batch be relative to the largest of all ranks, not of this one's rows.

        A record is drawn rows * chance times for a batch. What is drawn least has the largest weight, which is 1.
        """
        buffer, weights = self.ring.prioritised, self.batch.weights
        assert buffer is not None  # noqa: S101 - or nobody calls
        rate = len(weights) * buffer.chance(int(self.batch.places[np.argmax(weights)]))
        weights *= np.float32((self.ring.compare_priorities(rate) / rate) ** self._beta[0])

    @cached_property
    def _units(self) -> dict[str, Any]:
        """The units of updates, and of what comes into the ring."""
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
        if self.decide is not None:
            units["decide"] = self._calling(self.decide)
        if self._levels:
            units["level"] = self._calling(self._level)
        return units

    def _calling(self, function: Callable[[], None]) -> BoundUnit:
        """Bind a function of Python. Where it fails, nothing more is learned."""
        self.networks.team.outside.append(unit := PythonUnit(lambda *_: function()))
        arguments = unit.frame, self.program.outcome
        return bind_unit(call_unit_once, arguments, driver_translator(), disjoint=False)

    def _rows(self) -> Rows:
        """The rows of a batch, and where networks find what they read."""
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
