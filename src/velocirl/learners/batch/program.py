"""A program over whole batches: each stage is work for the device or a pass of a network, each meeting a reduction.

Work for rows that follows one upon the other is launched together, which on a GPU is one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from velocirl.engine.columns import Grouped, Shared, rows_at
from velocirl.engine.launching import Work, by_row
from velocirl.learners.batch.minibatches import Memory
from velocirl.learners.batch.networks import (
    GATHERED,
    LOSS_SCALE,
    MINIBATCH,
    MINIBATCHES,
    STOPPED,
    BatchNetworks,
    goes_on,
)  # fmt: skip
from velocirl.learners.program import GRADIENT, SLOPE, Call, Meeting, Pass, Program, mean_metrics
from velocirl.learners.stages import Backward, Follow, Forward, Mean, Once, Step, Stop

SINGLE, DOUBLE = np.float32, np.float64
WIDE = 64  # numbers of a field that are copied one by one, not by row


class Rows(NamedTuple):
    """The rows that go through a program, as columns (see `engine.columns`), all agents' one after the other."""

    row: Any  # of records
    fields: Mapping[str, Any]  # of float32 (rows, numbers): what networks may read
    widths: Mapping[str, int]  # of those fields
    rng: Any  # of streams
    fetch: Work | None = None  # what finds the rows first
    memory: Memory | None = None  # what a recurrent network needs beside them


class Sums(NamedTuple):
    """What functions have added to metrics; a row for each agent."""

    sums: Any  # (agents, slots) of this batch
    totals: Any  # (agents, slots) float64, of an iteration
    seen: Any  # (agents, passes) int64, rows of an iteration
    means: Any  # (agents, metrics + 1) float64, of the batch so far, and last the number of its rows
    single: Any  # (agents, metrics + 1) the same
    metric: Any  # (slots,) int64, to which metric a slot counts


def clear_row(i, r, t, numbers):  # noqa: ARG001 - every function of an index has the same first arguments
    """Let a row begin at zero."""
    row = numbers[i]
    for k in range(len(row)):
        row[k] = 0.0


def scale_row(i, r, t, gradient, rows, clock):  # noqa: ARG001
    """The share of a sample in the mean gradient of its batch."""
    row, share = gradient[i], np.float32(clock.numbers[i // rows, LOSS_SCALE] / rows)
    for k in range(len(row)):
        row[k] *= share


def scale_rows(i, r, t, gradient, rows, clock):  # noqa: ARG001
    """The same where a sample has several rows."""
    share = np.float32(clock.numbers[i // rows, LOSS_SCALE] / rows)
    for q in range(gradient.shape[1]):
        row = gradient[i, q]
        for k in range(len(row)):
            row[k] *= share


def load_element(n, r, t, source, into, start, width):  # noqa: ARG001
    """Copy number n of a field of all rows to where a network reads it."""
    i = n // width
    j = n - i * width
    given = rows_at((source,), i, i, t)[0]
    into[i, start + j] = given[j]


def load_row(i, r, t, source, into, start):
    """Copy a field of a row to where a network reads it."""
    given = rows_at((source,), i, r, t)[0]
    for j in range(len(given)):
        into[i, start + j] = given[j]


def load_several(i, r, t, source, into, start):
    """The same where a sample has several rows: of a field that has as many, or of one that is the same for all."""
    given = rows_at((source,), i, r, t)[0]
    for q in range(into.shape[1]):
        one = given[q if len(given) > 1 else 0]
        for j in range(len(one)):
            into[i, q, start + j] = one[j]


def begin_batch(s, r, t, sums, rows, clock, learns):  # noqa: ARG001
    """Before the first stage of an update, of which t were done since the last step."""
    clock.counts[s, MINIBATCH] += 1
    clock.counts[s, GATHERED] = 1 if t == 0 else clock.counts[s, GATHERED] + 1
    if learns and goes_on(clock, s):
        clock.counts[s, MINIBATCHES] += 1
    count = sums.means.shape[1]
    for m in range(count):
        sums.means[s, m] = 0.0
        sums.single[s, m] = 0.0
    sums.means[s, count - 1] = rows
    sums.single[s, count - 1] = rows


def tally(s, r, t, sums, first, stop, number, rows, clock):  # noqa: ARG001
    """Count what was added to metrics in a pass."""
    if goes_on(clock, s):
        for k in range(first, stop):
            sums.totals[s, k] += sums.sums[s, k]
        sums.seen[s, number] += rows


def find_means(s, r, t, sums, first, stop, rows):  # noqa: ARG001
    """What was added to metrics since the last meeting, as means over the batch."""
    for k in range(first, stop):
        sums.means[s, sums.metric[k]] += np.float64(sums.sums[s, k]) / rows
    round_means(s, r, t, sums)


def round_means(s, r, t, sums):  # noqa: ARG001
    """The means in single precision, as functions of rows see them."""
    for m in range(sums.means.shape[1]):
        sums.single[s, m] = sums.means[s, m]


class BatchProgram:
    """A program with its arguments, on one device."""

    def __init__(
        self, program: Program, networks: BatchNetworks, rows: Rows, count: int, like: BatchProgram | None = None
    ) -> None:
        """`count` rows of each agent go through it at once. With another program it shares memory: `like` that one."""
        self.program, self.networks, self._rows, self._count = program, networks, rows, count
        self.device, self.agents, self.clock = networks.device, networks.agents, networks.clock
        self._task, self._learns = networks.task, like is None
        config, total, zeros = self._task.config, self.agents * count, self.device.zeros
        forwards = program.forwards
        self._per = {
            name: getattr(config, one.rows) if isinstance(one.rows, str) else one.rows for name, one in forwards.items()
        }
        self._inputs: dict[str, Any] = {} if like is None else dict(like._inputs)
        self._outputs: dict[str, Any] = {} if like is None else dict(like._outputs)
        self._gradients: dict[str, Any] = {} if like is None else dict(like._gradients)
        for name, one in forwards.items():
            if name in self._inputs:
                continue
            width = sum(rows.widths[field] for field in one.reads)
            many, outputs = total * self._per[name], networks.networks[one.network].outputs
            self._inputs[name] = zeros(many, width)
            self._outputs[name], self._gradients[name] = zeros(many, outputs), zeros(many, outputs)
        slots = [(call, name) for call in program.calls for name in call.metrics]
        names = program.metrics
        self.metrics = names
        self._metric = np.array([names.index(name) for _, name in slots] or [0], np.int64)
        self._added = {id(call): zeros(total, len(call.metrics)) for call in program.calls if call.metrics}
        passes = max(len(program.passes), 1)
        self.sums = Sums(
            sums=zeros(self.agents, max(len(slots), 1)),
            totals=zeros(self.agents, max(len(slots), 1), dtype=DOUBLE),
            seen=zeros(self.agents, passes, dtype=np.int64),
            means=zeros(self.agents, len(names) + 1, dtype=DOUBLE),
            single=zeros(self.agents, len(names) + 1),
            metric=self.device.put(self._metric),
        )
        self.slot_passes: list[int] = []
        self._slopes: dict[str, Any] = {}
        self._steps: list[tuple[str | None, Callable[..., None]]] = []
        self._pending: list[Work] = []
        self._begun: set[str] = set()  # networks that have a gradient of this update
        self._build()

    def run(self, due: frozenset[str] = frozenset(), *, accumulate: bool = False, stepping: bool = True) -> None:
        """One update; `due` are the periods whose stages are done in it."""
        for every, function in self._steps:
            if every is None or every in due:
                function(accumulate, stepping)

    def begin(self) -> None:
        """Before an iteration."""
        self.device.fill(self.sums.totals, 0.0)
        self.device.fill(self.sums.seen, 0)

    def means_of(self, totals: Any, seen: Any) -> dict[str, float]:
        """The mean of each metric, from an agent's totals (slots,) and rows seen (passes,); NaN where there were none."""
        slots = list(zip(self._metric.tolist(), self.slot_passes, strict=False))
        return mean_metrics(self.metrics, slots, totals.tolist(), seen.tolist())

    def _build(self) -> None:
        self._every: str | None = None
        begin = self.device.launch(
            [Work(begin_batch, (self.sums, self._count, self.clock, int(self._learns)))], self.agents
        )
        self._add(lambda accumulate, stepping: begin(int(accumulate)))  # noqa: ARG005 - as every step
        if self._rows.fetch is not None:
            self._pending.append(self._rows.fetch)
        if self._rows.memory is not None:
            self._pending.append(self._rows.memory.work)
            self._flush()
            load = self._rows.memory.load
            self._add(lambda accumulate, stepping: load(0))  # noqa: ARG005
        slot, number, reported = 0, 0, 0
        for one in self.program.steps:
            self._flush()
            self._every = one.every
            if isinstance(one, Pass):
                first = slot
                for place, stage in enumerate(one.stages):
                    if isinstance(stage, Forward):
                        self._add_forward(stage)
                    elif isinstance(stage, Backward):
                        self._add_backward(stage)
                    else:
                        self._add_call(stage, one.stages[place + 1 :])
                self._flush()
                for stage in one.stages:
                    if isinstance(stage, Call) and stage.metrics:
                        self._add_sum(stage, slot)
                        self.slot_passes += [number] * len(stage.metrics)
                        slot += len(stage.metrics)
                arguments = self.sums, first, slot, number, self._count, self.clock
                self._add(self._bound([Work(tally, arguments)], self.agents))
                number += 1
                continue
            if isinstance(one.stage, (Mean, Once, Stop)):
                if slot > reported:
                    work = Work(find_means, (self.sums, reported, slot, self._count))
                    self._add(self._bound([work], self.agents))
                    reported = slot
            self._add_meeting(one)
        self._flush()

    def _add(self, function: Callable[..., None]) -> None:
        self._steps.append((self._every, function))

    def _bound(self, works: list[Work], count: int) -> Callable[..., None]:
        run = self.device.launch(works, count)
        return lambda accumulate, stepping: run(0)  # noqa: ARG005 - as every step

    def _flush(self) -> None:
        """Launch the work for rows that is waiting."""
        if self._pending:
            self._add(self._bound(list(self._pending), self.agents * self._count))
            self._pending.clear()

    def _add_forward(self, one: Forward) -> None:
        inputs, per, start = self._inputs[one.name], self._per[one.name], 0
        wide = []
        for name in one.reads:
            source, width = self._rows.fields[name], self._rows.widths[name]
            if per > 1:
                several = inputs.reshape(self.agents * self._count, per, -1)
                self._pending.append(Work(load_several, (_several(source), several, start)))
            elif width > WIDE:
                wide.append((Work(load_element, (source, inputs, start, width)), width))
            else:
                self._pending.append(Work(load_row, (source, inputs, start)))
            start += width
        self._flush()
        for work, width in wide:
            self._add(self._bound([work], self.agents * self._count * width))
        network, outputs = self.networks.networks[one.network], self._outputs[one.name]
        learns = [part for part in self._later(one) if isinstance(part, Backward) and part.name == one.name]
        reading = network.reading_back if any(part.into for part in learns) else network.learning
        read, memory = self._shaped(inputs, network), self._rows.memory if network.state_size else None
        starts = None if memory is None else memory.starts.reshape(memory.steps, -1)

        def run(accumulate: bool, stepping: bool) -> None:  # noqa: ARG001
            with reading(one.name) if learns else nullcontext():
                made = network.forward(read)[0] if memory is None else network.unroll(read, starts, memory.state)
            self.device.copy(outputs, made.reshape(outputs.shape))

        self._add(run)

    def _shaped(self, rows: Any, network: Any) -> Any:
        """Rows as a network reads them: of each of several agents, or of each step for one that remembers."""
        memory = self._rows.memory
        several = (memory.steps,) if network.state_size and memory is not None else network.parameters.shape[:-1]
        return rows.reshape(*several, -1, rows.shape[-1])

    def _later(self, stage: Forward) -> list[Any]:
        """The stages after one, up to the next pass of the same name."""
        stages = [part for step in self.program.steps if isinstance(step, Pass) for part in step.stages]
        place = next(number for number, part in enumerate(stages) if part is stage)
        rest = stages[place + 1 :]
        again = next((number for number, part in enumerate(rest) if isinstance(part, Forward) and
                      part.name == stage.name), len(rest))  # fmt: skip
        return rest[:again]

    def _add_backward(self, one: Backward) -> None:
        self._flush()
        forward = self.program.forwards[one.name]
        network, gradient = self.networks.networks[forward.network], self._gradients[one.name]
        given = self._shaped(gradient, network)
        if one.into is None:
            again = forward.network in self._begun  # then this adds to a gradient of the same update
            self._begun.add(forward.network)

            def run(accumulate: bool, stepping: bool) -> None:  # noqa: ARG001
                network.backward(given, accumulate or again, one.name)
        else:
            slopes = self.device.zeros(*self._inputs[one.name].shape)
            self._slopes[one.into] = slopes, one.name

            def run(accumulate: bool, stepping: bool) -> None:  # noqa: ARG001
                self.device.copy(slopes, network.input_gradient(given, one.name).reshape(slopes.shape))

        self._add(run)

    def _add_call(self, call: Call, following: tuple[Any, ...]) -> None:
        if call.metrics:
            self._pending.append(Work(clear_row, (self._added[id(call)],)))
        columns = tuple(self._column(name, call) for name in call.arguments)
        head = self._task.head if call.takes_head else None
        self._pending.append(Work(by_row(call.function, head), columns))
        for name in call.gradients:
            later = [one for one in following if isinstance(one, Call) and name in one.gradients]
            into = next((one.into for one in following if isinstance(one, Backward) and one.name == name), None)
            if not later and into is None:  # the last to write it
                gradient, per = self._gradients[name], self._per[name]
                rows = self.agents * self._count
                function, array = (scale_row, gradient) if per == 1 else (scale_rows, gradient.reshape(rows, per, -1))
                self._pending.append(Work(function, (array, self._count, self.clock)))

    def _add_sum(self, call: Call, slot: int) -> None:
        added, sums = self._added[id(call)], self.sums.sums[:, slot : slot + len(call.metrics)]
        self._add(lambda accumulate, stepping: self.device.sum_rows(added, sums))  # noqa: ARG005

    def _add_meeting(self, one: Meeting) -> None:
        stage, networks = one.stage, self.networks
        if isinstance(stage, Step):
            self._begun.discard(stage.network)

            def run(accumulate: bool, stepping: bool) -> None:  # noqa: ARG001
                if stepping:
                    networks.take_step(stage.network)

            self._add(run)
        elif isinstance(stage, Follow):
            follow = networks.bind_follow(stage.target, stage.source, getattr(self._task.config, stage.share))
            self._add(lambda accumulate, stepping: follow(0))  # noqa: ARG005
        elif one.call is not None:
            columns = tuple(self._once_column(name) for name in one.call.arguments)
            given = self.device.zeros(self.agents)
            steps = isinstance(stage, Once) and stage.steps is not None
            made = {Mean: then_for, Once: gradient_for if steps else once_for, Stop: stop_for}[type(stage)]
            function = made(one.call.function)
            works = [Work(function, (given, self.clock, *columns))]
            if isinstance(stage, Mean):
                works.append(Work(round_means, (self.sums,)))
            self._add(self._bound(works, self.agents))
            if isinstance(stage, Once) and stage.steps is not None:
                step = networks.bind_number(given, stage.steps)
                self._add(lambda accumulate, stepping: step(0))  # noqa: ARG005

    def _column(self, name: str, call: Call) -> Any:
        """What a function is called with under a name."""
        device = self.device
        if name == "row":
            return self._rows.row
        if name == "rng":
            return self._rows.rng
        if name == "metrics":
            return device.as_records(self._added[id(call)], call.metrics, SINGLE)
        if name == "means":
            return self._of_agent(self._means(self.sums.single, SINGLE))
        if name == "numbers":
            return self._of_agent(self._numbers())
        if name == "settings":
            return Shared(device.put(self._task.settings))
        if name.endswith(SLOPE):
            return self._slope(name.removesuffix(SLOPE))
        forward = name.removesuffix(GRADIENT)
        array = self._gradients[forward] if name.endswith(GRADIENT) else self._outputs[forward]
        per = self._per[forward]
        return array if per == 1 else array.reshape(self.agents * self._count, per, -1)

    def _once_column(self, name: str) -> Any:
        if name == "means":
            return self._means(self.sums.means, DOUBLE)
        return self._numbers() if name == "numbers" else Shared(self.device.put(self._task.settings))

    def _of_agent(self, rows: Any) -> Any:
        return Shared(rows) if self.agents == 1 else Grouped(rows, self._count)

    def _means(self, array: Any, kind: Any) -> Any:
        return self.device.as_records(array, [*self.metrics, "rows"], kind)

    def _numbers(self) -> Any:
        return self.device.as_records(self.networks.numbers, self._task.numbers or ["nothing"], SINGLE)

    def _slope(self, field: str) -> Any:
        slopes, name = self._slopes[field]
        reads = self.program.forwards[name].reads
        start = sum(self._rows.widths[one] for one in reads[: reads.index(field)])
        part = slopes[:, start : start + self._rows.widths[field]]
        per = self._per[name]
        return part if per == 1 else part.reshape(self.agents * self._count, per, -1)


def then_for(function: Callable[..., Any]) -> Callable[..., Any]:
    """`then(s, r, t, given, clock, *columns)`: a function of means that derives more of them."""

    def then(s, r, t, given, clock, *columns):  # noqa: ARG001
        function(*rows_at(columns, s, r, t))

    return then


def once_for(function: Callable[..., Any]) -> Callable[..., Any]:
    """`once(s, r, t, given, clock, *columns)`: a function of means that changes numbers."""

    def once(s, r, t, given, clock, *columns):  # noqa: ARG001
        if goes_on(clock, s):
            function(*rows_at(columns, s, r, t))

    return once


def gradient_for(function: Callable[..., Any]) -> Callable[..., Any]:
    """`gradient(s, r, t, given, clock, *columns)`: what a function of means gives, the gradient of a number."""

    def gradient(s, r, t, given, clock, *columns):
        if goes_on(clock, s):
            given[s] = function(*rows_at(columns, s, r, t))

    return gradient


def stop_for(function: Callable[..., Any]) -> Callable[..., Any]:
    """`stop(s, r, t, given, clock, *columns)`: whether the update of an agent ends here."""

    def stop(s, r, t, given, clock, *columns):  # noqa: ARG001
        if function(*rows_at(columns, s, r, t)):
            clock.counts[s, STOPPED] = 1

    return stop


def _several(column: Any) -> Any:
    """A field as several rows for each sample; one row where it has only that."""
    array = column[0] if isinstance(column, tuple) else column
    wide = array if len(array.shape) == 3 else array[:, None, :]
    return column._replace(rows=wide) if isinstance(column, tuple) else wide
