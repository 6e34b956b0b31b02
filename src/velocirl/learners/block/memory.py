"""Learning from the records of a memory on CPU threads: batches are drawn and learnt from in one compiled loop.

The calling thread draws the batches, whose rows are cut into shares (see `driver`). Where several processes train
together, each draws its part of a batch from its own memory, and the sums over all are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.records import drawn_type, narrow
from velocirl.buffers.replay import ReplayBuffer, Selection
from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed
from velocirl.engine.compiler.python_units import PythonUnit
from velocirl.engine.compiler.units import BoundUnit, bind_unit
from velocirl.engine.targets.team import Team
from velocirl.learners.block.driver import FAULT, driver_translator
from velocirl.learners.block.networks import BlockNetworks
from velocirl.learners.block.program import BlockProgram, Rows, frames_for
from velocirl.learners.block.stepping import (
    DRAW,
    ENTER,
    LEVEL,
    REVISE,
    UNITS,
    Stepping,
    drawing,
    drawn_costs,
    entering,
    fetch,
    fetch_with_next,
    learn_only,
    no_costs,
    revising,
)  # fmt: skip
from velocirl.learners.faults import check_update
from velocirl.learners.pace import PACE, Pace
from velocirl.learners.sharing import Sharing, even_shares
from velocirl.learners.task import Task
from velocirl.optim.optimisers import optimiser_from


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
        """So many updates from what is remembered, at which the run has taken `first` steps, and no step."""
        self.begin(pace)
        self.program.run(self._learning_driver, first, count)

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

    def _connect(self, units: dict[int, BoundUnit]) -> Stepping:
        """Bind the units of a batch beside those of a step; returns what drivers are called with, after the crew."""
        selection, book = self.buffer.selection(len(self.drawn))
        units |= self._batch_units(selection, book)
        table = np.zeros(UNITS, np.int64)
        for which, unit in units.items():
            table[which] = unit.frame
        if self._prioritised is not None and self.task.reducer.size > 1:
            self.program.outside.append(leveling := PythonUnit(self._level))
            table[LEVEL] = leveling.frame
        self._held = units
        self._stepping = Stepping(
            units=table,
            update=self.program.update.frame,
            decisions=np.array([(one.frame, stop) for one, stop in self.decisions], np.int64).reshape(-1, 2),
            counts=self.buffer.counts,
            capacity=self.buffer.capacity,
            copies=self.group,
            all_copies=self.task.config.num_envs,
            rows=len(self.drawn),
            clock=self._clock,
            exploration=self._exploration,
            beta=self._beta,
            updates=self._updates,
            pace=self._pace,
        )
        return self._stepping

    @cached_property
    def _learning_driver(self) -> BoundUnit:
        return bind_driver(learn_only, self.program.crew, self._stepping)

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

    def _batch_units(self, selection: Selection, book: Any) -> dict[int, BoundUnit]:
        buffer, config, bind = self.buffer, self.task.config, self.networks.bind
        chosen = book, buffer.counts
        find_costs = drawn_costs if self.task.reads_costs else no_costs
        follows = narrow(buffer.rows), self.group, config.n_step, float(config.gamma), self.batch
        others = self._first, self._rest
        return {
            ENTER: bind(entering(selection.enter), *chosen),
            DRAW: bind(
                drawing(selection.draw, find_costs), *chosen, buffer.rng, others, self._beta, *follows, self.drawn
            ),
            REVISE: bind(revising(selection.revise), *chosen, self.batch, self.drawn),
        }


def bind_driver(driver: Any, *arguments: Any) -> BoundUnit:
    """A compiled loop over units, with its arguments."""
    return bind_unit(driver, arguments, driver_translator(), disjoint=False)
