"""Dry run of an algorithm's functions in plain Python, on synthetic numbers, before anything is compiled.

An error is reported in the algorithm's own terms: the line, and what to write instead. Compiled code would accept a
gradient of the wrong width silently, and write out of bounds.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import drawn_type, narrow_type, rollout_type
from velocirl.engine import random
from velocirl.engine.checking.patience import Patience, TookTooLong
from velocirl.engine.compiler.columns import read_only
from velocirl.engine.errors import DefinitionError
from velocirl.engine.naming import nearest
from velocirl.engine.records import Row
from velocirl.program.counting.episodes import episodes_type
from velocirl.program.several import name_of, numbers_type
from velocirl.program.stages import Backward, Forward, Once, Step, Stop
from velocirl.program.task import Task
from velocirl.program.update import FIXED, GRADIENT, SLOPE, Call, Meeting, Pass, Program, file_of

UNWRITTEN = np.float32(1.2345e33)  # marks entries as unwritten: no function would write this value
STEPS = 3  # length of a time column


def rehearse(task: Task, algorithm: type) -> None:
    """Run every function of a task once; raise if one of them is invalid."""
    with Patience() as patience:
        _Rehearsal(task, algorithm, patience).run()


class _Rehearsal:
    def __init__(self, task: Task, algorithm: type, patience: Patience) -> None:
        self._task, self._algorithm, self._patience = task, algorithm, patience
        self._rollout = task.value is not None
        own, action = task.fields, task.action
        kind = narrow_type(rollout_type(1, action, own, task.values)) if self._rollout else drawn_type(action, own)
        self._kind = kind
        self._columns = {name: self._outputs(source) for name, source in self._sources().items()}
        advice = "declare it in Scratch, as in `log_probability: float32`"
        self._row = _record(kind, "row", advice)
        self._fill(self._row)
        self._learnt_row = _record(kind, "row", advice, self._row, fixed=FIXED)
        known = [name for name, value in vars(task.config).items() if isinstance(value, (int, float))]
        advice = "add it to the Config, as a number"
        self._settings = _record(task.settings.dtype, "settings", advice, task.settings, known=known)
        numbers, known = numbers_type(task.numbers, np.float32), [name_of(one) for one in task.numbers]
        self._numbers = _record(numbers, "numbers", "declare it in networks, as Number(...)", known=known)
        self._rng = random.streams(0, 1)[0]

    def run(self) -> None:
        task = self._task
        choices = max(task.action.choices, 1)
        known = {
            task.acting: self._output(self._columns[task.acting]),
            "mask": np.ones(choices, np.int8),
            "exploration": np.float32(0.5),
            "noise": np.zeros(task.head.action_size, np.float32),
        }
        if not any(isinstance(one, Meeting) and isinstance(one.stage, Step) for one in task.program.steps):
            name, file = self._algorithm.__name__, file_of(self._algorithm)
            raise DefinitionError(f"{name}: update: nothing is learnt; write step(network) at its end\n  at {file}")
        self._call(task.act, known, "act")
        if task.value is not None:
            self._call(task.value, known, "state_value")
        for function, names in task.estimates:
            self._column(function, names)
        episodes = _record(episodes_type(len(task.constraints)), "episodes", "it has count and costs")
        for call in task.decisions:
            self._call(call, {"episodes": episodes}, f"once({call.function.__name__})")
        if task.before_epoch is not None:
            self._program(task.before_epoch)
        for function, names in task.reestimates:
            self._column(function, names)
        self._program(task.program)

    def _program(self, program: Program) -> None:
        """Run all passes and reductions for one row."""
        known: dict[str, Any] = {}
        shown = [*self._algorithm.reports, "rows"]
        means = _record(
            numbers_type((*program.metrics, "rows"), np.float64), "means", "add it to `reports`", known=shown
        )
        means.rows = 2.0
        for one in program.steps:
            if isinstance(one, Meeting):
                if one.call is not None:
                    given = self._call(one.call, {"means": means}, str(one.stage))
                    wanted = isinstance(one.stage, Stop) or (isinstance(one.stage, Once) and one.stage.steps)
                    if wanted and not isinstance(given, (bool, int, float, np.generic)):
                        advice = "return whether to stop" if isinstance(one.stage, Stop) else "return a gradient"
                        raise self._error(str(one.stage), f"it gives {given!r}", advice, one.call.function)
                continue
            for place, stage in enumerate(one.stages):
                if isinstance(stage, Forward):
                    self._forward(stage, known)
                elif isinstance(stage, Backward):
                    if stage.into is not None:
                        known[f"{stage.into}{SLOPE}"] = self._slope(stage.into, program.forwards[stage.name])
                else:
                    advice, declared = "add it to `reports`, with the name to show", list(self._algorithm.reports)
                    metrics = _record(numbers_type(stage.metrics, np.float64), "metrics", advice, known=declared)
                    found = {**known, "metrics": metrics, "means": means, "row": self._learnt_row}
                    self._call(stage, found, f"each({stage.function.__name__})")
                    self._check_gradients(stage, one, place, known)

    def _forward(self, stage: Forward, known: dict[str, Any]) -> None:
        config = self._task.config
        rows = getattr(config, stage.rows) if isinstance(stage.rows, str) else stage.rows
        columns = self._columns[stage.network]
        shape = (columns,) if rows == 1 else (rows, columns)
        known[stage.name] = read_only(self._output(*shape))
        known[f"{stage.name}{GRADIENT}"] = np.full(shape, UNWRITTEN, np.float32)

    def _slope(self, field: str, forward: Forward) -> NDArray[np.float32]:
        size = self._kind[field].shape[-1:] or (1,)
        rows = getattr(self._task.config, forward.rows) if isinstance(forward.rows, str) else forward.rows
        return read_only(np.full(size if rows == 1 else (rows, *size), 0.1, np.float32))

    def _check_gradients(self, call: Call, one: Pass, place: int, known: Mapping[str, Any]) -> None:
        """Raise if the last function before a backward pass left an entry of the gradient unwritten."""
        for name in call.gradients:
            gradient = known[f"{name}{GRADIENT}"]
            later = [stage for stage in one.stages[place + 1 :] if isinstance(stage, (Call, Backward))]
            following = next((stage for stage in later if isinstance(stage, Backward) or name in stage.gradients), None)
            unwritten = np.argwhere(gradient == UNWRITTEN)
            if isinstance(following, Backward) and len(unwritten):
                first = ", ".join(map(str, unwritten[0]))
                raise self._error(
                    f"each({call.function.__name__})",
                    f"it leaves gradient[{first}] of {name!r} unwritten, which has {gradient.shape[-1]} columns",
                    "write all of them, 0.0 where there is nothing to learn",
                    call.function,
                )

    def _call(self, call: Call, known: Mapping[str, Any], stage: str) -> Any:
        shared = {
            "row": self._row, "settings": self._settings, "numbers": self._numbers, "rng": self._rng,
        }  # fmt: skip
        arguments = [{**shared, **known}[name] for name in call.arguments]
        head = [self._task.head] if call.takes_head else []
        sizes = ", ".join(f"{name} has {size} columns" for name, size in self._columns.items())
        return self._attempt(call.function, [*head, *arguments], stage, f"{sizes}, and so have their gradients")

    def _column(self, function: Callable[..., Any], names: Sequence[str]) -> None:
        rows = np.zeros(STEPS, self._kind)
        arguments = [self._settings if name == "settings" else rows[name] for name in names]
        sizes = "its arrays are over the steps of a rollout, and one place for what follows them"
        self._attempt(function, arguments, f"column({function.__name__})", sizes)

    def _attempt(self, function: Callable[..., Any], arguments: list[Any], stage: str, sizes: str) -> Any:
        try:
            with np.errstate(all="ignore"):
                return self._patience.call(function, *arguments)
        except DefinitionError:
            raise
        except Exception as error:
            raise self._error(stage, *self._told(error, sizes), function, error) from error

    def _told(self, error: Exception, sizes: str) -> tuple[str, str]:
        """Return the description of an error, and advice on how to fix it."""
        what = f"it {error}" if isinstance(error, TookTooLong) else f"{type(error).__name__}: {error}"
        if isinstance(error, AttributeError) and "; " in str(error):  # the record's message includes the advice
            return tuple(str(error).rsplit("; ", 1))  # pyright: ignore[reportReturnType]
        if isinstance(error, IndexError):
            return what, sizes
        if isinstance(error, ValueError) and "read-only" in str(error):
            what = "it writes to what it can only read: a row's action or mask, or the output of a network"
            return what, "declare a field for it in Scratch"
        return what, "it is called for one sample, with numbers and arrays of numbers"

    def _error(
        self, stage: str, what: str, advice: str, function: Callable[..., Any], error: Exception | None = None
    ) -> DefinitionError:
        file, line = function.__code__.co_filename, function.__code__.co_firstlineno
        for frame in [] if error is None else traceback.extract_tb(error.__traceback__):
            if frame.filename == file and frame.lineno is not None:
                line = frame.lineno  # the deepest line of the function's own file
        return DefinitionError(f"{self._algorithm.__name__}: {stage}: {what}; {advice}\n  at {file}:{line}")

    def _sources(self) -> dict[str, str]:
        """Map each network to the trained network of its architecture; a target network maps to its source."""
        return {name: name for name in self._task.trained} | self._task.targets

    def _outputs(self, name: str) -> int:
        return self._task.built[name].outputs

    def _output(self, *shape: int) -> NDArray[np.float32]:
        return np.linspace(-0.1, 0.2, int(np.prod(shape)), dtype=np.float32).reshape(shape)

    def _fill(self, row: Any) -> None:
        """Fill a row with plausible numbers: an ongoing episode, and the first of all actions."""
        for name in self._kind.names or ():
            if name in ("mask", "next_mask", "weight"):
                row[name] = 1
            elif self._kind[name].base.kind == "f":
                row[name] = 0.1


def _record(
    dtype: np.dtype[Any],
    name: str,
    advice: str,
    values: NDArray[Any] | None = None,
    *,
    known: Sequence[str] | None = None,  # valid field names
    fixed: Sequence[str] = (),  # read-only fields
) -> Any:
    """Return a record whose error for an unknown field includes `advice`."""
    names = list(dtype.names or ()) if known is None else known

    class Named(Row):
        def __getattribute__(self, field: str) -> Any:
            fields = np.void.__getattribute__(self, "dtype").fields
            if field in fields or field.startswith("__"):
                found = super().__getattribute__(field)
                return read_only(found) if field in fixed else found
            raise AttributeError(f"{name} has no {field!r}{nearest(field, names)}; {advice}")

        def __setattr__(self, field: str, value: Any) -> None:
            fields = np.void.__getattribute__(self, "dtype").fields
            if field not in fields:
                raise AttributeError(f"{name} has no {field!r}{nearest(field, names)}; {advice}")
            if field in fixed:
                raise ValueError(f"{name}.{field} is read-only")
            self[field] = value

    made = np.zeros(1, dtype)
    if values is not None:
        made[...] = values
    return made.view(np.dtype((Named, dtype)))[0]
