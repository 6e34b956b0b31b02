"""Learning from the records of a memory on CPU threads: batches are drawn and learnt from in one compiled loop.

The calling thread draws the batches, whose rows are cut into shares (see `driver`). Where several processes train
together, each draws its part of a batch from its own memory, and the sums over all are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.lowering import Iteration, Unit, blocks_of_rows
from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.records import drawn_type, narrow
from velocirl.buffers.replay import ReplayBuffer
from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed
from velocirl.engine.compiler.python_units import PythonUnit
from velocirl.engine.compiler.units import BoundUnit, bind_unit
from velocirl.engine.targets.team import Team
from velocirl.learners.block.driver import FAULT, driver_translator
from velocirl.learners.block.networks import BlockNetworks
from velocirl.learners.block.program import BlockProgram, Rows, frames_for
from velocirl.learners.block.replay_units import (
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
from velocirl.learners.counting.phases import PLACES_OF_TIME
from velocirl.learners.faults import check_update
from velocirl.learners.pace import PACE, Pace
from velocirl.learners.sharing import Sharing, even_shares
from velocirl.learners.task import Task
from velocirl.optim.optimisers import optimiser_from
from velocirl.program.iteration import Operations
from velocirl.program.replay import updates


class Batch(NamedTuple):
    """What is drawn for one update."""

    places: NDArray[np.int64]  # (batch,) of the records
    lasts: NDArray[np.int64]  # (batch,) of those whose next observation and mask count
    rewards: NDArray[np.float32]  # (batch,) of up to n steps
    discounts: NDArray[np.float32]  # (batch,) of what follows; 0 where nothing does
    weights: NDArray[np.float32]  # (batch,) of the losses
    errors: NDArray[np.float32]  # (batch,) what the update found


class BlockMemory:
    """Networks that learn from what is drawn from a buffer; who fills that is not said here."""

    decisions: Sequence[tuple[Any, int]] = ()  # units of what is decided by episodes, and where their indices stop

    def __init__(self, task: Task, buffer: ReplayBuffer, sharing: Sharing, group: int = 1) -> None:
        """Records of the memory come in groups of one for each copy; of a batch it draws what `sharing` says."""
        config = task.config
        self.task, self.phases, self.buffer, self.sharing, self.group = task, task.phases, buffer, sharing, group
        whole = config.effective_batch_size  # blocks are small: here it is as one batch that gradients add up
        self._first, stop = sharing.streams[task.reducer.rank]
        self._rest, batch = whole - stop, stop - self._first
        self._streams = random.streams(task.seeds.learner + 1, batch, self._first)  # a stream for each row of a batch
        shares = min(config.shares, batch)
        self.team = Team(config.threads, frames_for(shares, config.threads))
        self.networks = BlockNetworks(task, optimiser_from(config.optimiser), shares, self.team)
        places, numbers = np.zeros((2, batch), np.int64), np.zeros((4, batch), np.float32)
        self.batch = Batch(places[0], places[1], numbers[0], numbers[1], numbers[2], numbers[3])
        self.drawn = np.zeros(batch, drawn_type(task.action, task.fields))
        self._updates, self._pace = np.zeros(1, np.int64), np.zeros(1, PACE)
        self._clock, self._exploration, self._beta = np.zeros(1, np.int64), np.zeros(1, np.float32), np.zeros(1)
        rows = self._rows()
        self.program = BlockProgram(task.program, self.networks, lambda share: rows)  # noqa: ARG005 - all alike
        self.program.rows[:] = even_shares(batch, shares)
        job = self.program.job[0]
        job["batch"], job["begins"], job["weight"] = whole, 1, whole

    def update(self, pace: Pace, count: int, first: int = 0) -> None:
        """Run `count` updates from the replay buffer without stepping; `first` is the run's step count."""
        self.begin(pace)
        self.learn(first, count)

    def learn(self, step: int, count: int) -> None:
        """Run `count` updates, when the run has taken `step` steps."""
        updates = self._updating
        updates["step"], updates["due"] = step, count
        self.program.run(updates.start, 0, 0)

    def begin(self, pace: Pace) -> None:
        """At the beginning of an iteration."""
        self._pace[0] = tuple(pace)
        self.networks.learning[0] = pace.learning_rate, pace.max_grad_norm, pace.max_grad_value
        self.program.begin()

    def compare_priorities(self, rate: float = 0.0) -> float:
        """Let the greatest priority so far be that of all processes; gives the least of the rates that they tell."""
        buffer, reducer = self._prioritised, self.task.reducer
        if buffer is None or reducer.size == 1:
            return rate
        told = np.zeros((reducer.size, 2))
        told[reducer.rank] = rate, buffer.greatest[0]
        reducer.sum(told)
        buffer.greatest[0] = told[:, 1].max()
        return float(told[:, 0].min())

    def check(self, steps: int) -> None:
        """Refuse parameters that are not finite, after so many steps."""
        for parameters in self.networks.learnt:
            check_update(bool(self.program.outcome[FAULT]), parameters, steps)

    def gauges(self) -> dict[str, float]:
        """Return how many threads work on updates now."""
        return self.team.gauges(self.program.tuner)

    def settle(self) -> None:
        """The agent's own arrays are those that this learner works on."""

    def take(self) -> None:
        """Lay the parameters out anew, after something else than an update changed them."""
        self.networks.pack()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What decides the next updates beside the memory, as the arrays themselves."""
        return {"learner.rng": self._streams, "learner.updates": self._updates, **self.networks.arrays()}

    def load_arrays(self, own: dict[str, NDArray[Any]], state: Any) -> None:
        """Go on from such arrays of a state."""
        for name, array in own.items():
            # The streams of rows may come from another device, which has others.
            if name != "learner.rng" or state[name].shape == array.shape:
                array[...] = state[name]

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
        found = fetch_with_next if self.task.reads_next else fetch
        return Rows(self.drawn, {**fields, **wide}, self._streams, (found, columns))

    def iteration(self, operations: Operations, units: Mapping[str, Unit]) -> Iteration:
        """Lower an iteration with updates, given the units of its steps."""
        every, counters = {**units, **self._units}, self.program.counters[0]
        blocks, items = blocks_of_rows(self.group)
        return Iteration(operations, every, PLACES_OF_TIME, counters, blocks, items, batch=len(self.drawn))

    @cached_property
    def _updating(self) -> Iteration:
        """Updates alone."""
        return self.iteration(self.updates, {})

    @property
    def updates(self) -> Operations:
        """The operations of the updates that are due."""
        return updates(decides=bool(self.decisions), levels=self._levels)

    @property
    def _levels(self) -> bool:
        """Return whether ranks have to agree on the weights of a batch."""
        return self._prioritised is not None and self.task.reducer.size > 1

    @property
    def _prioritised(self) -> PrioritisedReplayBuffer | None:
        return self.buffer if isinstance(self.buffer, PrioritisedReplayBuffer) else None

    def _level(self, first: int, stop: int, place: int) -> None:  # noqa: ARG002 - as every unit
        """After a draw from priorities: weights are relative to the largest of all processes, not of this one's rows.

        A record is drawn rows * chance times for a batch. What is drawn least has the largest weight, which is 1.
        """
        buffer, weights = self._prioritised, self.batch.weights
        assert buffer is not None  # noqa: S101 - or nobody calls
        rate = len(weights) * buffer.chance(int(self.batch.places[np.argmax(weights)]))
        weights *= np.float32((self.compare_priorities(rate) / rate) ** self._beta[0])

    @cached_property
    def _units(self) -> dict[str, Any]:
        """The units of updates, and of what comes into the ring."""
        buffer, config, bind = self.buffer, self.task.config, self.networks.bind
        selection, book = buffer.selection(len(self.drawn))
        chosen = book, buffer.counts
        find_costs = drawn_costs if self.task.reads_costs else no_costs
        follows = narrow(buffer.rows), self.group, config.n_step, self._pace, self.batch
        others = self._first, self._rest
        draw = drawing(selection.draw, find_costs)
        units: dict[str, Any] = {
            "enter": bind(entering(selection.enter), *chosen, buffer.capacity, self.group),
            "begin_update": bind(begin_update, self._pace, self._beta, self._updates),
            "draw": bind(draw, *chosen, buffer.rng, others, self._beta, *follows, self.drawn),
            "update": self.program.update,
            "end_update": bind(
                revising(selection.revise), *chosen, self.batch, self.drawn, self._updates, self.program.outcome
            ),
        }
        if self.decisions:
            units["decide"] = self._calling([(unit.frame, stop) for unit, stop in self.decisions])
        if self._levels:
            self.program.outside.append(level := PythonUnit(self._level))
            units["level"] = self._calling([(level.frame, len(self.drawn))])
        return units

    def _calling(self, frames: Sequence[tuple[int, int]]) -> BoundUnit:
        return bind_driver(call_each, np.array(frames, np.int64), self.program.outcome)


def bind_driver(driver: Any, *arguments: Any) -> BoundUnit:
    """A compiled loop over units, with its arguments."""
    return bind_unit(driver, arguments, driver_translator(), disjoint=False)
