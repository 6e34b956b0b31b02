"""Epochs of updates over a rollout, in whole batches: in Python, in torch or as CUDA graphs.

Every epoch and minibatch is a fixed sequence of work. Decisions within an update are made on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd, isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.frames.frames import make_stacks
from velocirl.backends.batch.lowering import Iteration
from velocirl.backends.batch.minibatches import Extent, Minibatches
from velocirl.backends.batch.update import BatchProgram, Rows
from velocirl.buffers.records import narrow
from velocirl.collect.rollout_records import RolloutRecords
from velocirl.engine import random
from velocirl.engine.compiler.columns import Indexed
from velocirl.engine.targets.launching import Work
from velocirl.program.clock import FAULT, GATHERED, MINIBATCHES, STOPPED
from velocirl.program.rollout import epochs
from velocirl.program.rows.frames import find_sample
from velocirl.program.schedule import Schedule
from velocirl.program.seeding import Seeds
from velocirl.program.sharing import sharing_of_rollouts
from velocirl.program.task import Task

Kind = tuple[frozenset[str], bool, bool]  # due periods; whether gradients accumulate; whether a step is taken


def begin_update(s, r, t, clock):  # noqa: ARG001 - every function of an index has the same first arguments
    """Reset an agent's faults and minibatch counts."""
    for name in (FAULT, STOPPED, GATHERED, MINIBATCHES):
        clock.counts[s, name] = 0


class BatchEpochs:
    """All epochs over a rollout, for one or several agents."""

    counters: Any = ()  # parts of updates are not timed

    def __init__(
        self, task: Task, device: Any, networks: Any, recorded: RolloutRecords, seeds: Sequence[Seeds]
    ) -> None:
        config, agents, part = task.config, len(seeds), task.part
        self._task, self._device, self._clock = task, device, networks.clock
        self.sharing = sharing_of_rollouts(config.num_envs, 1, task.reducer.size)
        self.done = 0  # minibatches of the run, as counted on the host
        state_size = recorded.start_state.shape[1]
        unit = config.horizon if state_size or config.minibatches == "environments" else 1
        # Minibatches of a process have equal size; each is the process's part of one common minibatch.
        common = gcd(*part.all_copies) * config.horizon // unit
        self.minibatches = nearest_divisor(common, min(config.num_minibatches, common))
        units = part.copies * config.horizon // unit
        rows = units // self.minibatches * unit
        extent = Extent(agents, part.copies, config.horizon, rows, units, unit)
        self.drawing = Minibatches(device, extent, self._clock, [one.learner for one in seeds], part.first_thread)
        self._draws = any("rng" in call.arguments for call in task.program.calls)
        self._streams = self._make_streams(seeds)
        batch = config.num_envs * config.horizon // self.minibatches
        drawn = self._rows(recorded, self.drawing.drawn)
        self.program = BatchProgram(task.program, networks, drawn, rows, batch=batch)
        self._before: BatchProgram | None = None
        if task.before_epoch is not None:
            in_order = self._rows(recorded, self.drawing.in_order)
            self._before = BatchProgram(task.before_epoch, networks, in_order, rows, like=self.program, batch=batch)
        self._begin_update = device.launch([Work(begin_update, (self._clock,))], agents)
        given = [recorded.columns_for(*one) for one in task.reestimates]
        self._columns = device.over_copies(given, len(recorded.records))
        self.shuffle: Callable[[], None] = self.drawing.shuffle
        self._reestimate: Callable[[], None] = self._reestimate_now
        self._updates: dict[Kind, Callable[[], None]] = {}
        bound = {
            "begin_order": [self._begin_order],
            "order_rows": [lambda: None],
            "before_epoch": [lambda: self._reestimate()],  # includes the columns: one graph for both
            "columns": [lambda: None],
            "shuffle": [lambda: self.shuffle()],
            "begin_minibatch": [self._begin_minibatch],
            "update": [self._update],
        }
        learns = epochs(reestimates=self._before is not None)
        self._iteration = Iteration(learns, bound, device.launch, minibatches=self.minibatches)

    def begin(self) -> None:
        """Begin an iteration."""
        self._begin_update(0)
        self.program.begin()

    def run(self, schedule: Schedule) -> None:
        """Run all epochs."""
        self._accumulate = schedule.accumulate
        self._iteration.counters["epochs"] = schedule.epochs
        self._iteration.run()

    def try_each(self) -> None:
        """Run one update of each kind, so that they can be captured."""
        for kind in self._kinds():
            self.drawing.rewind(0)
            self._update_with(*kind)

    def capture(self) -> None:
        """Capture each kind of update, and the work before an epoch, as CUDA graphs."""
        capture = self._device.capture
        if self._before is not None:
            self._reestimate = capture(self._reestimate)
        for kind in self._kinds():
            self._updates[kind] = capture(lambda kind=kind: self._update_with(*kind))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the random streams and the minibatch count."""
        fetch = self._device.fetch
        own = {"learner.rng": fetch(self.drawing.rng), "learner.minibatches": np.array([0, self.done])}
        return {**own, **({"learner.draws": fetch(self._streams)} if self._draws else {})}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved `state`."""
        store, rng = self._device.store, self.drawing.rng
        if state["learner.rng"].shape == rng.shape:  # a native learner has a stream per share
            store(rng, state["learner.rng"])
        self.done = int(state["learner.minibatches"][-1])
        if self._draws and state.get("learner.draws", np.zeros(0)).shape == self._streams.shape:
            store(self._streams, state["learner.draws"])

    def _begin_order(self) -> bool:
        self.drawing.begin()
        return False

    def _begin_minibatch(self, minibatch: int) -> int:
        self.done += 1
        due = self._task.program.due(self._task.config, self.done)
        self._kind = due, *self._shape(minibatch, self._accumulate)
        return self.done

    def _update(self, first: int, stop: int, number: int) -> bool:  # noqa: ARG002 - as every operation of this name
        kind = self._kind
        self._updates[kind]() if kind in self._updates else self._update_with(*kind)
        return not self._device.reports_late and self._stopped()

    def _update_with(self, due: frozenset[str], accumulate: bool, stepping: bool) -> None:
        self.program.run(due, accumulate=accumulate, stepping=stepping)

    def _stopped(self) -> bool:
        return bool(self._device.fetch(self._clock.counts)[:, [FAULT, STOPPED]].any())

    def _kinds(self) -> list[Kind]:
        """Return all kinds of updates."""
        accumulate = self._task.config.gradient_accumulation
        places = range(min(self.minibatches, 2 * accumulate))
        shapes = {self._shape(m, accumulate) for m in (*places, self.minibatches - 1)}
        return [(due, *shape) for due in self._task.program.kinds_of_updates() for shape in sorted(shapes)]

    def _shape(self, m: int, accumulate: int) -> tuple[bool, bool]:
        return m % accumulate > 0, (m + 1) % accumulate == 0 or m == self.minibatches - 1

    def _reestimate_now(self) -> None:
        """Run the program before an epoch on all rows, in stored order, and then the functions over columns."""
        assert self._before is not None  # noqa: S101 - only then it is called
        self.drawing.rewind(0)
        for _ in range(self.minibatches):
            self._before.run()
        self._columns()

    def _rows(self, recorded: RolloutRecords, fetch: Work) -> Rows:
        """Return the rows of a minibatch, with the columns that networks read."""
        records, index, film = recorded.memory, self.drawing.index, recorded.film
        flat = narrow(records).reshape(-1)
        fields: dict[str, Any] = {}
        for name in flat.dtype.names or ():
            if flat.dtype[name].base == np.float32:
                array = flat[name]
                fields[name] = array if len(array.shape) > 1 else array[:, None]
        works = (fetch,)
        if film is None:
            fields["observation"] = records.reshape(-1)["observation"]
        widths = {name: array.shape[-1] for name, array in fields.items()}
        memory = self.drawing.memory(flat, recorded.start_state) if recorded.start_state.shape[1] else None
        columns: dict[str, Any] = {name: Indexed(array, index) for name, array in fields.items()}
        if film is not None and self._task.frames is not None:
            stacks = make_stacks(
                self._device, film.frames, self._task.frames, self._task.encoding.table, len(index), film.copies,
                film.cuts_from,
            )  # fmt: skip
            columns["observation"], widths["observation"] = stacks, self._task.encoding.inputs
            works = fetch, Work(find_sample, (index, flat, stacks))
        return Rows(Indexed(flat, index), columns, widths, Indexed(self._streams, index), works, memory)

    def _make_streams(self, seeds: Sequence[Seeds]) -> Any:
        """Return a random stream for each row, if a function draws numbers, else one per agent."""
        if not self._draws:
            return self._device.put(np.concatenate([random.streams(one.learner + 1, 1) for one in seeds]))
        copies, part, times = self._task.config.num_envs, self._task.part, self._task.config.horizon + 1
        whole = [random.streams(one.learner + 1, copies * times).reshape(times, copies, 2) for one in seeds]
        own = [one[:, part.first :][:, : part.copies].reshape(-1, 2) for one in whole]
        return self._device.put(np.concatenate(own))


def nearest_divisor(count: int, wanted: int) -> int:
    """Return the divisor of `count` nearest to `wanted`; of two, the smaller."""
    small = [one for one in range(1, isqrt(count) + 1) if count % one == 0]
    return min([*small, *(count // one for one in small)], key=lambda one: (abs(one - wanted), one))
