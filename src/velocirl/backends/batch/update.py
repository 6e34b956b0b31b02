"""Program over whole batches: each stage is device work or a network pass, each `Meeting` a reduction.

Consecutive work for rows is launched together, on a GPU as one kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from velocirl.backends.batch.functions import (
    Sums,
    adding,
    begin_batch,
    find_means,
    gradient_for,
    load_element,
    load_row,
    load_several,
    once_for,
    round_means,
    scale_row,
    scale_rows,
    share_of,
    stop_for,
    tally,
    then_for,
    whole,
    writing,
)  # fmt: skip
from velocirl.backends.batch.minibatches import Memory
from velocirl.backends.batch.networks import BatchNetworks
from velocirl.backends.batch.sequence import Sequence
from velocirl.buffers.records import WIDE as OBSERVATIONS
from velocirl.engine.compiler.columns import NUMBERS, Fresh, Grouped, Indexed, Shared
from velocirl.engine.targets.launching import Work, by_row
from velocirl.program.reducing import ALONE
from velocirl.program.rows.frames import Stacks, load_strip, strips_of
from velocirl.program.stages import Backward, Follow, Forward, Mean, Once, Step, Stop
from velocirl.program.update import GRADIENT, SLOPE, Call, Meeting, Pass, Program, mean_metrics

SINGLE, DOUBLE = np.float32, np.float64
WIDE = 64  # wider fields are copied by element, not by row
NO_METRICS = np.dtype([("nothing", SINGLE)])  # for a function that takes metrics and adds to none


class Rows(NamedTuple):
    """Input rows of a program, as columns (see `engine.compiler.columns`), one agent after the other."""

    row: Any  # column of records
    fields: Mapping[str, Any]  # float32 (rows, numbers) or Stacks that networks may read
    widths: Mapping[str, int]  # numbers per row of each field
    rng: Any  # column of random streams
    fetch: tuple[Work, ...] = ()  # work that finds the rows first
    memory: Memory | None = None  # additional inputs of a recurrent network

    def part(self, some: slice) -> Rows:
        """Return the rows of a slice."""
        fields = {name: _cut(one, some) for name, one in self.fields.items()}
        return self._replace(row=_cut(self.row, some), fields=fields, rng=_cut(self.rng, some))


class BatchProgram:
    """Program bound to its arguments on one device."""

    def __init__(
        self,
        program: Program,
        networks: BatchNetworks,
        rows: Rows,
        count: int,
        like: BatchProgram | None = None,
        parts: int = 1,
        batch: int | None = None,
    ) -> None:
        """`count` is the number of rows per agent, `batch` the number over all processes.

        The program shares the arrays of the program `like`, if given. A single agent's rows may be processed in equal
        `parts` between reductions, so that passes need memory for one part only.
        """
        self.program, self.networks, self._rows, self._count = program, networks, rows, count
        self._batch = batch or count
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
            self._inputs[name] = zeros(many // parts, width)  # of one part; outputs are kept for all rows
            self._outputs[name], self._gradients[name] = zeros(many, outputs), zeros(many, outputs)
        slots = [(call, name) for call in program.calls for name in call.metrics]
        names = program.metrics
        self.metrics = names
        self._metric = np.array([names.index(name) for _, name in slots] or [0], np.int64)
        self._parts = [slice(part * count // parts, (part + 1) * count // parts) for part in range(parts)]
        self._part: slice | None = None  # current part of the rows while stages are added, if there are parts
        group, self._keep = self.device.summing(count // parts)
        self._group = group
        self._added = {
            id(call): zeros(total // group, len(call.metrics), dtype=DOUBLE) for call in program.calls if call.metrics
        }
        passes = max(len(program.passes), 1)
        self.sums = Sums(
            sums=zeros(self.agents, max(len(slots), 1), dtype=DOUBLE),
            totals=zeros(self.agents, max(len(slots), 1), dtype=DOUBLE),
            seen=zeros(self.agents, passes, dtype=np.int64),
            means=zeros(self.agents, len(names) + 1, dtype=DOUBLE),
            single=zeros(self.agents, len(names) + 1),
            metric=self.device.put(self._metric),
        )
        self.slot_passes: list[int] = []
        self._slopes: dict[str, dict[str, Any]] = {}  # by field, then by the name of the forward pass
        self._sequence = Sequence(self.device, total // parts, self.agents)
        self._begun: set[str] = set()  # networks that have a gradient in this update
        self._loaded: set[tuple[str, str]] = set()  # fields already loaded for a forward pass
        self._build()

    def run(self, due: frozenset[str] = frozenset(), *, accumulate: bool = False, stepping: bool = True) -> None:
        """Run one update; `due` are the periods whose stages run in it."""
        self._sequence.run(due, accumulate=accumulate, stepping=stepping)

    def begin(self) -> None:
        """Begin an iteration."""
        self.device.fill(self.sums.totals, 0.0)
        self.device.fill(self.sums.seen, 0)

    def summed(self) -> tuple[Any, Any]:
        """Return the metric sums of an iteration, (agents, slots), and the rows seen, (agents, passes)."""
        return self.sums.totals, self.sums.seen

    def means_of(self, totals: Any, seen: Any) -> dict[str, float]:
        """Return the mean of each metric, from an agent's totals (slots,) and rows seen (passes,); NaN without rows."""
        slots = list(zip(self._metric.tolist(), self.slot_passes, strict=False))
        return mean_metrics(self.metrics, slots, totals.tolist(), seen.tolist())

    def _build(self) -> None:
        sequence, sums = self._sequence, self.sums
        sequence.for_agents(Work(begin_batch, (sums, self._batch, self.clock, int(self._learns))))
        self._fetch()
        slot, number, reported = 0, 0, 0
        for one in self.program.steps:
            sequence.section(one.every)
            if isinstance(one, Pass):
                first = slot
                self._add_pass(one)
                for stage in one.stages:
                    if isinstance(stage, Call) and stage.metrics:
                        self._add_sum(stage, slot)
                        self.slot_passes += [number] * len(stage.metrics)
                        slot += len(stage.metrics)
                sequence.for_agents(Work(tally, (sums, first, slot, number, self._count, self.clock)))
                number += 1
                continue
            if isinstance(one.stage, (Mean, Once, Stop)) and slot > reported:
                self._reduce_sums(reported, slot)
                sequence.for_agents(Work(find_means, (sums, reported, slot, self._batch)))
                reported = slot
            self._add_meeting(one)
        sequence.flush()

    def _add_pass(self, one: Pass) -> None:
        """Add all stages of a pass, for all rows or part by part."""
        rows = self._rows
        for part in self._parts:
            if len(self._parts) > 1:
                self._part, self._rows = part, rows.part(part)
            for place, stage in enumerate(one.stages):
                if isinstance(stage, Forward):
                    self._add_forward(stage)
                elif isinstance(stage, Backward):
                    self._add_backward(stage)
                else:
                    self._add_call(stage, one.stages[place + 1 :])
            self._sequence.flush()
        self._part, self._rows = None, rows

    def _of(self, arrays: Mapping[str, Any], name: str) -> Any:
        """Return a forward pass's array, limited to the current part of the rows."""
        if self._part is None:
            return arrays[name]
        per = self._per[name]
        return arrays[name][self._part.start * per : self._part.stop * per]

    def _fetch(self) -> None:
        """Find the rows, and load the fields that no function changes."""
        sequence, memory = self._sequence, self._rows.memory
        if self._rows.fetch:
            sequence.for_rows(*self._rows.fetch)
        for part in self.program.passes if len(self._parts) == 1 else ():
            for one in part.stages:
                if isinstance(one, Forward) and part.every is None and self._per[one.name] == 1:
                    names = self._always_read(one)
                    self._load(one, names)
                    self._loaded |= {(one.name, name) for name in names}
        if memory is not None:
            sequence.for_rows(memory.work)
            sequence.call(lambda: memory.load(0))

    def _always_read(self, one: Forward) -> list[str]:
        """Return the observations that all forward passes of a name read at the same offset: loaded only once."""
        stages = [stage for part in self.program.passes for stage in part.stages]
        alike = [stage.reads for stage in stages if isinstance(stage, Forward) and stage.name == one.name]
        return [
            name
            for place, name in enumerate(one.reads, 1)
            if name in OBSERVATIONS and all(reads[:place] == one.reads[:place] for reads in alike)
        ]

    def _load(self, one: Forward, names: Iterable[str]) -> None:
        """Copy fields to a network's inputs, except those already loaded."""
        inputs, per, start = self._inputs[one.name], self._per[one.name], 0
        rows = len(inputs) // per
        wide = []
        for name in one.reads:
            source, width = self._rows.fields[name], self._rows.widths[name]
            if name in names and (one.name, name) not in self._loaded:
                if isinstance(source, Stacks):
                    strip = self.device.strip(source.frames.shape[1])
                    strips = source.stack * strips_of(source.frames.shape[1], strip)
                    wide.append((Work(load_strip, (source, inputs, start, per, strip)), rows * per * strips))
                elif per > 1:
                    several = inputs.reshape(rows, per, -1)
                    self._sequence.for_rows(Work(load_several, (_several(source), several, start)))
                elif width > WIDE:
                    wide.append((Work(load_element, (source, inputs, start, width)), rows * width))
                else:
                    self._sequence.for_rows(Work(load_row, (source, inputs, start)))
            start += width
        for work, count in wide:
            run = self.device.launch([work], count)
            self._sequence.call(lambda run=run: run(0))

    def _add_forward(self, one: Forward) -> None:
        self._load(one, one.reads)
        inputs = self._inputs[one.name]
        network, outputs = self.networks.networks[one.network], self._of(self._outputs, one.name)
        learns = [part for part in self._later(one) if isinstance(part, Backward) and part.name == one.name]
        reading = network.reading_back if any(part.into for part in learns) else network.learning
        read, memory = self._shaped(inputs, network), self._rows.memory if network.state_size else None
        starts = None if memory is None else memory.starts.reshape(memory.steps, -1)

        def run() -> None:
            with reading(one.name) if learns else nullcontext():
                made = network.forward(read)[0] if memory is None else network.unroll(read, starts, memory.state)
            self.device.copy(outputs, made.reshape(outputs.shape))

        self._sequence.call(run)

    def _shaped(self, rows: Any, network: Any) -> Any:
        """Reshape rows for a network: a first dimension of agents, or of steps for a recurrent network."""
        memory = self._rows.memory
        several = (memory.steps,) if network.state_size and memory is not None else network.parameters.shape[:-1]
        return rows.reshape(*several, -1, rows.shape[-1])

    def _later(self, stage: Forward) -> list[Any]:
        """Return the stages after `stage`, up to the next forward pass of the same name."""
        stages = [part for step in self.program.steps if isinstance(step, Pass) for part in step.stages]
        place = next(number for number, part in enumerate(stages) if part is stage)
        rest = stages[place + 1 :]
        again = next((number for number, part in enumerate(rest) if isinstance(part, Forward) and
                      part.name == stage.name), len(rest))  # fmt: skip
        return rest[:again]

    def _add_backward(self, one: Backward) -> None:
        forward = self.program.forwards[one.name]
        network, gradient = self.networks.networks[forward.network], self._of(self._gradients, one.name)
        given = self._shaped(gradient, network)
        if one.into is None:
            again = forward.network in self._begun  # then it accumulates onto a gradient of the same update
            self._begun.add(forward.network)
            self._sequence.call_with(lambda accumulate: network.backward(given, accumulate or again, one.name))
        else:
            if one.into not in self._slopes:
                rows, width = len(self._outputs[one.name]), self._inputs[one.name].shape[-1]
                self._slopes[one.into] = {one.name: self.device.zeros(rows, width)}
            slopes = self._of(self._slopes[one.into], one.name)
            self._sequence.call(
                lambda: self.device.copy(slopes, network.input_gradient(given, one.name).reshape(slopes.shape))
            )

    def _add_call(self, call: Call, following: tuple[Any, ...]) -> None:
        columns = tuple(self._column(name, call) for name in call.arguments)
        head = self._task.head if call.takes_head else None
        alone = self._written_at_once(call)
        if alone is not None:
            gradient, scales = self._of(self._gradients, alone), self._scales(alone, following)
            place = f"{alone}{GRADIENT}"
            columns = list(columns)
            columns[call.arguments.index(place)] = Fresh(self.device.records((1,), _numbers_type(gradient.shape[-1])))
            places = call.arguments.index("metrics"), call.arguments.index(place)
            function = writing(call.function, head, *places, self._keep, share_of if scales else whole)
            self._sequence.for_rows(
                Work(function, (self._metrics_of(call), gradient, self._batch, self.clock, *columns))
            )
            return
        if call.metrics:
            added = self._metrics_of(call)
            function = adding(call.function, head, call.arguments.index("metrics"), self._keep)
            self._sequence.for_rows(Work(function, (added, *columns)))
        else:
            self._sequence.for_rows(Work(by_row(call.function, head), columns))
        for name in call.gradients:
            if self._scales(name, following):
                gradient, per = self._of(self._gradients, name), self._per[name]
                rows = len(gradient) // per
                function, array = (scale_row, gradient) if per == 1 else (scale_rows, gradient.reshape(rows, per, -1))
                self._sequence.for_rows(Work(function, (array, self._batch, self.clock)))

    def _scales(self, name: str, following: tuple[Any, ...]) -> bool:
        """Return whether this call is the last to write an output gradient that is propagated to parameters."""
        later = [one for one in following if isinstance(one, Call) and name in one.gradients]
        into = next((one.into for one in following if isinstance(one, Backward) and one.name == name), None)
        return not later and into is None

    def _written_at_once(self, call: Call) -> str | None:
        """Return the gradient, of one row per sample, that only this call writes, or None.

        It is computed in registers and stored once.
        """
        if not call.metrics or len(call.gradients) != 1 or self._per[call.gradients[0]] != 1:
            return None
        name = call.gradients[0]
        stages = [part for step in self.program.steps if isinstance(step, Pass) for part in step.stages]
        writers = [one for one in stages if isinstance(one, Call) and name in one.gradients]
        return name if len(writers) == 1 else None

    def _add_sum(self, call: Call, slot: int) -> None:
        added, sums = self._added[id(call)], self.sums.sums[:, slot : slot + len(call.metrics)]
        self._sequence.call(lambda: self.device.sum_rows(added, sums))

    def _reduce_sums(self, first: int, stop: int) -> None:
        """All-reduce the metric sums, if several processes train."""
        if self._task.reducer is not ALONE:
            some = self.sums.sums[0, first:stop]
            self._sequence.call(lambda: self.networks.reduce(some), waits=True)

    def _add_meeting(self, one: Meeting) -> None:
        stage, networks, sequence = one.stage, self.networks, self._sequence
        if isinstance(stage, Step):
            self._begun.discard(stage.network)
            scale, find_norms, prepare, descend = networks.step_parts(stage.network)
            if self._task.reducer is not ALONE:
                gradient = networks.learnt[stage.network].gradient
                sequence.call(lambda: networks.reduce(gradient), stepping=True)
            if scale is not None:
                sequence.call(scale, stepping=True, waits=True)
            sequence.call(find_norms, stepping=True)
            sequence.for_agents(prepare, stepping=True)
            sequence.call(descend, stepping=True, waits=True)
        elif isinstance(stage, Follow):
            follow = networks.bind_follow(stage.target, stage.source, self._task.settings[stage.share])
            sequence.call(follow, waits=True)
        elif one.call is not None:
            columns = tuple(self._once_column(name) for name in one.call.arguments)
            given = self.device.zeros(self.agents)
            steps = isinstance(stage, Once) and stage.steps is not None
            made = {Mean: then_for, Once: gradient_for if steps else once_for, Stop: stop_for}[type(stage)]
            sequence.for_agents(Work(made(one.call.function), (given, self.clock, *columns)))
            if isinstance(stage, Mean):
                sequence.for_agents(Work(round_means, (self.sums,)))
            if isinstance(stage, Once) and stage.steps is not None:
                sequence.for_agents(networks.number_step(given, stage.steps))

    def _column(self, name: str, call: Call) -> Any:
        """Return the column for a function's argument of this name."""
        device = self.device
        if name == "row":
            return self._rows.row
        if name == "rng":
            return self._rows.rng
        if name == "metrics":
            return Fresh(self._metrics_of(call)) if call.metrics else Fresh(device.records((1,), NO_METRICS))
        if name == "means":
            return self._of_agent(self._means(self.sums.single, SINGLE))
        if name == "numbers":
            return self._of_agent(self._numbers())
        if name == "settings":
            return Shared(device.shown(self._task.settings))
        if name.endswith(SLOPE):
            return self._slope(name.removesuffix(SLOPE))
        forward = name.removesuffix(GRADIENT)
        array = self._of(self._gradients if name.endswith(GRADIENT) else self._outputs, forward)
        per = self._per[forward]
        return array if per == 1 else array.reshape(len(array) // per, per, -1)

    def _metrics_of(self, call: Call) -> Any:
        added, part = self._added[id(call)], self._part
        some = added if part is None else added[part.start // self._group : part.stop // self._group]
        return self.device.as_records(some, call.metrics, DOUBLE)

    def _once_column(self, name: str) -> Any:
        if name == "means":
            return self._means(self.sums.means, DOUBLE)
        return self._numbers() if name == "numbers" else Shared(self.device.shown(self._task.settings))

    def _of_agent(self, rows: Any) -> Any:
        return Shared(rows) if self.agents == 1 else Grouped(rows, self._count)

    def _means(self, array: Any, kind: Any) -> Any:
        return self.device.as_records(array, [*self.metrics, "rows"], kind)

    def _numbers(self) -> Any:
        return self.device.as_records(self.networks.numbers, self._task.numbers, SINGLE)

    def _slope(self, field: str) -> Any:
        ((name, _),) = self._slopes[field].items()
        slopes = self._of(self._slopes[field], name)
        reads = self.program.forwards[name].reads
        start = sum(self._rows.widths[one] for one in reads[: reads.index(field)])
        part = slopes[:, start : start + self._rows.widths[field]]
        per = self._per[name]
        return part if per == 1 else part.reshape(len(part) // per, per, -1)


def _numbers_type(width: int) -> np.dtype[Any]:
    return np.dtype([(NUMBERS, SINGLE, (width,))])


def _cut(column: Any, some: slice) -> Any:
    """Return a slice of a column, which may be indexed or stacked frames."""
    if isinstance(column, Stacks):
        places = {name: getattr(column, name)[some] for name in ("newest", "before", "age")}
        return column._replace(**places)
    return column._replace(index=column.index[some]) if isinstance(column, Indexed) else column[some]


def _several(column: Any) -> Any:
    """Return a field with a dimension for the rows of a sample, of size 1 where it has none."""
    array = column[0] if isinstance(column, tuple) else column
    wide = array if len(array.shape) == 3 else array[:, None, :]
    return type(column)(wide, *column[1:]) if isinstance(column, tuple) else wide
