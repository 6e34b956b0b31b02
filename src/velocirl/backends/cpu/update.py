"""Program for CPU threads: each stage is a unit with its arguments, each reduction an instruction of the driver.

The output of a forward pass exists only while its block is processed. For a stage after a reduction that reads an
output from before it, the forward pass is repeated at the beginning of the stage's own pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu import driver
from velocirl.backends.cpu.driver import (
    INSTRUCTION,
    JOB,
    Crew,
    ShareWork,
    Sums,
    driver_translator,
    run_share,
    update,
)  # fmt: skip
from velocirl.backends.cpu.networks import ThreadedNetworks, backward_unit, forward_unit
from velocirl.engine.compiler.columns import Local, Shared, Summed, read_only, rows_at, with_width
from velocirl.engine.compiler.counters import allocate
from velocirl.engine.compiler.python_units import PythonUnit
from velocirl.engine.compiler.units import BoundUnit, bind_unit
from velocirl.engine.targets.indexing import row_loop
from velocirl.networks.mlp import ROWS, Workspace
from velocirl.program.clock import FAULT, STOPPED
from velocirl.program.counting import phases
from velocirl.program.several import numbers_type
from velocirl.program.stages import Backward, Follow, Forward, Mean, Once, Step, Stop
from velocirl.program.update import FIXED, GRADIENT, SLOPE, Call, Pass, Program, mean_metrics

SINGLE, DOUBLE = np.float32, np.float64


class Rows(NamedTuple):
    """Input rows of a program, as columns (see `engine.compiler.columns`)."""

    row: Any  # column of records
    fields: Mapping[str, Any]  # float32 (rows, numbers) that networks may read
    rng: Any  # column of random streams
    fetch: tuple[Callable[..., Any], tuple[Any, ...]] | None = None  # fills rows first; its columns


def once_unit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run(columns, first, stop, place)`: call a predicate once; returns 1 if it holds, else 0."""

    def run(columns, first, stop, place):  # noqa: ARG001 - as every unit
        return 1 if function(*rows_at(columns, 0, 0, 0)) else 0

    return run


def then_unit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run(columns, first, stop, place)`: call a function without a result once."""

    def run(columns, first, stop, place):  # noqa: ARG001
        function(*rows_at(columns, 0, 0, 0))
        return 0

    return run


def gradient_unit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run(arguments, first, stop, place)`: call a function once and store its result, a scalar's gradient."""

    def run(arguments, first, stop, place):  # noqa: ARG001
        columns, gradients, which = arguments
        gradients[0, which] = function(*rows_at(columns, 0, 0, 0))
        return 0

    return run


def load_unit(columns, first, stop, place):
    """Copy a field of each row to a network's inputs, one row for each sample."""
    for i in range(first, stop):
        source, into = rows_at(columns, i, i - first, place)
        for j in range(len(source)):
            into[j] = source[j]
    return 0


def load_several_unit(columns, first, stop, place):
    """Copy a field to a network's inputs, several rows for each sample; a field with one row is repeated."""
    for i in range(first, stop):
        source, into = rows_at(columns, i, i - first, place)
        for k in range(len(into)):
            given = source[k if len(source) > 1 else 0]
            for j in range(len(given)):
                into[k, j] = given[j]
    return 0


class ThreadedProgram:
    """Program bound to units, for each share of the rows."""

    def __init__(self, program: Program, networks: ThreadedNetworks, rows: Callable[[int], Rows]) -> None:
        self.program, self.networks, self.rows_of = program, networks, rows
        shares = networks.shares
        self.per = {name: self._per(one) for name, one in program.forwards.items()}
        self._calls = [call for call in program.calls if call.metrics]
        names, slots = program.metrics, [(call, name) for call in self._calls for name in call.metrics]
        passes = program.passes
        self._places: dict[int, int] = {}  # first slot of each call, by the call's id
        of_pass = []
        for number, part in enumerate(passes):
            for one in part.stages:
                if isinstance(one, Call) and one.metrics:
                    self._places[id(one)] = len(of_pass)
                    of_pass += [number] * len(one.metrics)
        self.metrics = names
        self._slots = [(names.index(name), number) for (_, name), number in zip(slots, of_pass, strict=True)]
        count, width = max(len(slots), 1), -(-max(len(slots), 1) // 8) * 8  # no two shares write to one cache line
        self.sums = Sums(
            own=np.zeros((shares, width)),
            metric=np.array([names.index(name) for _, name in slots], np.int64),
            of_pass=np.array(of_pass, np.int64),
            totals=np.zeros(count),
            seen=np.zeros((shares, max(len(passes), 1)), np.int64),
            common=np.zeros(count),
            means=np.zeros(len(names) + 1),
            single=np.zeros(len(names) + 1, np.float32),
        )
        self._reducing = PythonUnit(self._reduce) if networks.task.reducer.size > 1 else None
        if self._reducing is not None:
            networks.team.outside.append(self._reducing)
        self.outcome: NDArray[np.int64] = networks.clock.counts[0]
        self.job = np.zeros(1, JOB)
        self.job["most"] = ROWS // max(self.per.values(), default=1)
        self.rows = np.zeros((shares, 2), np.int64)  # first and stop row of each share
        self.counters = allocate(1)
        self.tuner = networks.team.tuner(shares)
        networks.tuner = self.tuner if networks.tuner is None else networks.tuner
        self._held: list[Any] = []
        self.crew = self._crew()
        self.update = bind_unit(update, (self.crew,), driver_translator(), disjoint=False)

    def begin(self) -> None:
        """Begin an iteration."""
        self.outcome[[FAULT, STOPPED]] = 0
        self.sums.totals[:], self.sums.seen[:] = 0.0, 0

    def summed(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the metric sums of an iteration, (1, slots), and the rows seen, (1, passes)."""
        return self.sums.totals[None], self.sums.seen.sum(0)[None]

    def means_of(self, totals: NDArray[Any], seen: NDArray[Any]) -> dict[str, float]:
        """Return the mean of each metric, from totals (slots,) and rows seen (passes,); NaN without rows."""
        return mean_metrics(self.metrics, self._slots, totals.tolist(), seen.tolist())

    def _reduce(self, which: int, stop: int, place: int) -> None:  # noqa: ARG002 - as every unit
        """All-reduce for `driver.reduce_over_processes`."""
        array = self.sums.common if which < 0 else self.networks.summed_gradients()[which]
        self.networks.task.reducer.sum(array)

    def _per(self, forward: Forward) -> int:
        return getattr(self.networks.task.config, forward.rows) if isinstance(forward.rows, str) else forward.rows

    def _crew(self) -> Crew:
        networks, trained = self.networks, [self.networks.trained(name) for name in self.networks.task.trained]
        builds = [_Building(self, share) for share in range(networks.shares)]
        works = [build.work() for build in builds]
        units = [bind_unit(run_share, (work,), driver_translator(), disjoint=False) for work in works]
        self._held += [builds, trained]
        return Crew(
            team=networks.team.view,
            tuner=self.tuner,
            shares=networks.shares,
            passes=networks.team.add(units),
            program=works[0].program,
            units=works[0].units,
            rows=self.rows,
            networks=np.array([frame.address for frame in trained]),
            number_steps=networks.number_steps,
            number_gradients=networks.number_gradients,
            number_factors=networks.number_factors,
            number_optimiser=networks.number_optimiser.frame,
            sums=self.sums,
            learning=networks.learning,
            job=self.job,
            outcome=self.outcome,
            counters=self.counters[0],
            reduce=0 if self._reducing is None else self._reducing.frame,
        )

    @cached_property
    def targets(self) -> dict[str, tuple[int, int]]:
        """Results of `ThreadedNetworks.following`, by the name of the target network."""
        settings = self.networks.task.settings
        follows = [one.stage for one in self.program.steps if not isinstance(one, Pass)]
        return {
            one.target: self.networks.following(one.target, settings[one.share])
            for one in follows
            if isinstance(one, Follow)
        }


class _Building:
    """Builder of the units of one share."""

    def __init__(self, whole: ThreadedProgram, share: int) -> None:
        self._whole, self._share = whole, share
        self._networks, self._task = whole.networks, whole.networks.task
        self._rows, self._sums = whole.rows_of(share), whole.sums
        self._units: list[tuple[BoundUnit | None, int]] = []
        self._works: dict[str, Workspace] = {
            name: self._networks.own_work(one.network, share) for name, one in whole.program.forwards.items()
        }

    def work(self) -> ShareWork:
        """Return the units and rows of the share."""
        program = self._instructions()
        units = [(0 if unit is None else unit.frame, place) for unit, place in self._units]
        whole, share = self._whole, self._share
        return ShareWork(
            program=program,
            units=np.array(units or [(0, 0)], np.int64),
            rows=whole.rows[share],
            seen=self._sums.seen[share],
            job=whole.job,
            counters=whole.counters[0],
        )

    def _instructions(self) -> NDArray[Any]:
        """Return the driver's instructions; adds the units that they call."""
        task, rows, number = self._task, [], 0
        config, begun = task.config, set()
        steps = self._whole.program.steps
        for place, one in enumerate(steps):
            period = 1 if one.every is None else getattr(config, one.every)
            if isinstance(one, Pass):
                fresh = [name for name in self._with_gradients(one) if name not in begun]
                begun.update(fresh)
                first = len(self._units)
                for name in fresh:
                    self._add(self._networks.clearing(name, self._share), phases.BACKWARD)
                body = len(self._units)
                fetch = self._rows.fetch
                if number == 0 and fetch is not None:
                    self._add(self._networks.bind(row_loop(fetch[0]), *fetch[1]), phases.GATHER)
                self._add_pass(one)
                after = len(self._units)
                for name in self._stepped_after(one, steps[place + 1 :]):
                    self._add(self._networks.unpacking(name, self._share), phases.OPTIMISER)
                rows.append((driver.PASS, first, body, after, len(self._units), number, period))
                number += 1
                continue
            stage, unit, more, size = one.stage, -1, -1, 0
            if isinstance(stage, Step):
                kind, unit = driver.STEP, task.trained.index(stage.network)
                begun.discard(stage.network)
            elif isinstance(stage, Follow):
                kind = driver.FOLLOW
                unit, size = self._whole.targets[stage.target]
            else:
                kind = {Mean: driver.MEAN, Once: driver.ONCE, Stop: driver.STOP}[type(stage)]
                if one.call is not None:
                    unit = len(self._units)
                    if isinstance(stage, Once) and stage.steps is not None:
                        more = task.numbers.index(stage.steps)
                    self._add_once(one.call, stage, more)
            rows.append((kind, unit, 0, 0, more, size, period))
        return np.array(rows, INSTRUCTION)

    def _stepped_after(self, part: Pass, steps: Sequence[Any]) -> list[str]:
        """Return the networks that receive gradients in a pass and are stepped in `steps`."""
        stepped = {one.stage.network for one in steps if not isinstance(one, Pass) and isinstance(one.stage, Step)}
        return [name for name in self._with_gradients(part) if name in stepped]

    def _with_gradients(self, part: Pass) -> list[str]:
        """Return the networks that receive gradients in a pass."""
        forwards = self._whole.program.forwards
        found = [forwards[one.name].network for one in part.stages if isinstance(one, Backward) and one.into is None]
        return list(dict.fromkeys(found))

    def _add_pass(self, part: Pass) -> None:
        made = {one.name for one in part.stages if isinstance(one, Forward)}
        wanted: dict[str, None] = {}
        for one in part.stages:
            if isinstance(one, Call):
                names = [name.removesuffix(GRADIENT) for name in one.arguments]
                wanted.update(dict.fromkeys(name for name in names if name in self._whole.program.forwards))
            elif isinstance(one, Backward):
                wanted[one.name] = None
        for name in wanted:
            if name not in made:
                self._add_forward(self._whole.program.forwards[name])
        for one in part.stages:
            if isinstance(one, Forward):
                self._add_forward(one)
            elif isinstance(one, Backward):
                self._add_backward(one)
            else:
                columns = tuple(self._column(name, one) for name in one.arguments)
                self._add(self._networks.bind_call(one, columns, FIXED), phases.LOSS)

    def _add_forward(self, one: Forward) -> None:
        work, per, start = self._works[one.name], self._whole.per[one.name], 0
        for name in one.reads:
            source = self._rows.fields[name]
            size = _width(source)
            into = self._inputs(one.network, work.values, start, size, per)
            if per == 1:
                unit = self._networks.bind(load_unit, with_width(source), with_width(Local(into)))
            else:
                unit = self._networks.bind(load_several_unit, _several(source), Local(into))
            self._add(unit, phases.GATHER)
            start += size
        network, functions = self._networks.network(one.network), self._networks.functions(one.network)
        self._add(
            self._networks.bind(forward_unit(functions), network.plan, work, per, name=one.network), phases.FORWARD
        )

    def _add_backward(self, one: Backward) -> None:
        forward = self._whole.program.forwards[one.name]
        work, per = self._works[one.name], self._whole.per[one.name]
        if one.into is not None:  # separate arrays: parameter gradients of this pass must not count
            work = work._replace(gradient=np.zeros_like(work.gradient), fresh=np.ones(1, np.int64))
        network, functions = self._networks.network(forward.network), self._networks.functions(forward.network)
        into = int(one.into is not None)
        unit = self._networks.bind(backward_unit(functions), network.plan, work, per, into, name=forward.network)
        self._add(unit, phases.BACKWARD)

    def _add_once(self, call: Call, stage: Any, number: int) -> None:
        if self._share > 0:  # functions of means are called once, in the first share
            self._units.append((None, phases.OPTIMISER))
            return
        columns = tuple(self._once_column(name) for name in call.arguments)
        if number >= 0:
            unit: Any = gradient_unit(call.function)
            self._add(self._networks.bind(unit, columns, self._networks.number_gradients, number), phases.OPTIMISER)
        else:
            unit = once_unit(call.function) if isinstance(stage, Stop) else then_unit(call.function)
            self._add(self._networks.bind(unit, *columns), phases.OPTIMISER)

    def _add(self, unit: BoundUnit, place: int) -> None:
        self._units.append((unit, place))

    def _inputs(self, network: str, values: NDArray[Any], start: int, size: int, per: int) -> NDArray[Any]:
        """Return a view of some inputs of a block: (rows, size), or (samples, per, size)."""
        row = int(self._networks.network(network).plan.layers[0]["source_row"])
        block = values[: ROWS * row].reshape(ROWS, row)[:, start : start + size]
        return block if per == 1 else block[: ROWS // per * per].reshape(ROWS // per, per, size)

    def _column(self, name: str, call: Call) -> Any:
        """Return the column for a function's argument of this name."""
        rows = self._rows
        if name == "row":
            return rows.row
        if name == "rng":
            return rows.rng
        if name == "metrics":
            first = self._whole._places[id(call)]
            own = self._sums.own[self._share, first : first + len(call.metrics)]
            return Summed(own.view(numbers_type(call.metrics, DOUBLE)))
        if name == "means":
            return Shared(self._means(self._sums.single, SINGLE))
        if name == "numbers":
            return Shared(self._networks.numbers)
        if name == "settings":
            return Shared(self._task.settings)
        if name.endswith(SLOPE):
            return Local(read_only(self._slope(name.removesuffix(SLOPE))))
        forward = name.removesuffix(GRADIENT)
        work, per = self._works[forward], self._whole.per[forward]
        block = work.output_gradient if name.endswith(GRADIENT) else read_only(work.output)
        return Local(block if per == 1 else block[: ROWS // per * per].reshape(ROWS // per, per, -1))

    def _once_column(self, name: str) -> Any:
        if name == "means":
            return Shared(self._means(self._sums.means, DOUBLE))
        return Shared(self._networks.numbers if name == "numbers" else self._task.settings)

    def _means(self, array: NDArray[Any], kind: Any) -> NDArray[Any]:
        return array.view(numbers_type([*self._whole.metrics, "rows"], kind))

    def _slope(self, field: str) -> NDArray[Any]:
        """Return the gradient of the loss with respect to a field, from the last backward pass into it."""
        backward = [one for part in self._whole.program.passes for one in part.stages
                    if isinstance(one, Backward) and one.into == field][-1]  # fmt: skip
        forward = self._whole.program.forwards[backward.name]
        before = forward.reads[: forward.reads.index(field)]
        start = sum(_width(self._rows.fields[name]) for name in before)
        deltas, size = self._works[backward.name].deltas, _width(self._rows.fields[field])
        return self._inputs(forward.network, deltas, start, size, self._whole.per[backward.name])


def _width(column: Any) -> int:
    return (column[0] if isinstance(column, tuple) else column).shape[-1]


def _several(column: Any) -> Any:
    """Return a field with a dimension for the rows of a sample, of size 1 where it has none."""
    array = column[0] if isinstance(column, tuple) else column
    wide = array if array.ndim == 3 else array[:, None, :]
    return type(column)(wide, *column[1:]) if isinstance(column, tuple) else wide
