"""Dry run of an environment in plain Python before it is compiled.

Compiled code has no bounds checks, and numba's messages name its own types. Plain Python reports a missing field, an
index out of range or a wrong return at its very line. Environments are therefore compiled only after this run.
"""

from __future__ import annotations

import numbers
import re
import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from velocirl.engine import random
from velocirl.engine.checking.patience import Patience
from velocirl.engine.checking.syntax import array_as_number, bound_anew, formatted_text, returns
from velocirl.engine.checking.telling import described, failed, own_functions
from velocirl.engine.constraints import violating
from velocirl.engine.environment import COMPILED
from velocirl.engine.errors import DefinitionError, debugging
from velocirl.engine.fleets.fleet import allocate
from velocirl.engine.fleets.sampling import sampler
from velocirl.engine.records import Record, Row, with_attributes

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

STEPS = 32
WRITTEN = {"reset": 0, "observe": 2, "observe_row": 3, "legal": 2}  # index of the argument that a function writes


def rehearse(environment: Environment, params: np.ndarray) -> None:
    """Run one environment for some random steps and raise the first problem, with its line and a correction."""
    with np.errstate(all="ignore"):
        for one in environment.params.extremes(params[:1]):
            for problem in problems(environment, one, STEPS):
                raise problem


def problems(environment: Environment, params: np.ndarray, steps: int, seed: int = 0) -> list[DefinitionError]:
    """Return the problems in a run of `steps` random steps; an exception in a function ends the run."""
    try:
        return _Run(environment, params, seed).run(steps)
    except DefinitionError as problem:
        return [problem]


def try_state(environment: Environment, state: np.ndarray, params: np.ndarray, rng: np.ndarray) -> None:
    """Observe and take one step from an external state (1,); raises the first problem."""
    run = _Run(environment, params, 0)
    run.copies.state[:], run.copies.rng[:] = state, rng
    with np.errstate(all="ignore"):
        run.look_and_step()


def left_unwritten(record: Record, field: str) -> str:
    """Describe a field that `reset` does not write."""
    return f"leaves {record.name}.{field} as it was; write every field that a function reads"


class _Run:
    """Run of one environment in plain Python with checks of each call."""

    def __init__(self, environment: Environment, params: np.ndarray, seed: int) -> None:
        self.environment = environment
        self.copies = allocate(environment, 1, {})
        self.copies.rng[:] = random.streams(seed, 1)
        self.copies.params[:] = params[:1]
        self.state = with_attributes(self.copies.state)[0]
        self.params = with_attributes(self.copies.params)[0]
        self.rng = self.copies.rng[0]
        self._actions = with_attributes(self.copies.action) if self.copies.action.dtype.names else self.copies.action
        self._seeing = "observe" if environment.observe is not None else "observe_row"
        self._patience = Patience()
        self.found: dict[str, DefinitionError] = {}  # by message: each problem is reported once
        self._looked = False

    def run(self, steps: int) -> list[DefinitionError]:
        choose = sampler(self.environment)
        for name, function in own_functions(self.environment):
            if (found := formatted_text(function)) is not None:
                place = f"{function.__code__.co_filename}:{found.line}"
                raise DefinitionError(described(self.environment.id, name, found.what, place))
        with self._patience:
            self._begin()
            self._check_written()
            for _ in range(steps):
                choose(self.copies, 0)
                if self._step(self._actions[0]):
                    self._begin()
                else:
                    self._look()
        return list(self.found.values())

    def look_and_step(self) -> None:
        """Observe and step once from the current state."""
        with self._patience:
            self._write_frame(self._frame())
            if self.environment.legal:
                self._call("legal", self.state, self.params, self.copies.mask[0])
            sampler(self.environment)(self.copies, 0)
            self._step(self._actions[0])
            self._write_frame(self._frame())

    def _begin(self) -> None:
        self._write_only("reset", self.state, self.params, self.rng)
        self._check_bounds("reset")
        self._look()

    def _check_written(self) -> None:
        """Report fields that `reset` leaves untouched in two states that differ in every byte."""
        record = self.environment.state
        rows = record.rows(2)
        rows[1:].view(np.uint8)[:] = 1
        before = rows.copy()
        for state in with_attributes(rows):
            self._call("reset", state, self.params, self.rng.copy())
        for field in record.fields:
            if rows[field].tobytes() == before[field].tobytes():
                self._report("reset", left_unwritten(record, field))

    def _step(self, action: Any) -> bool:
        arguments = (self.state, self.params, action, self.rng)
        returned = self._call("step", *arguments)
        if not isinstance(returned, tuple) or len(returned) != 2:
            more = isinstance(returned, tuple) and len(returned) > 2
            hint = "; `observe` writes the observation, and `max_steps` truncates" if more else ""
            raise self._problem("step", f"returns {_short(returned)}; write `return reward, terminated`{hint}")
        reward, terminated = returned
        if isinstance(reward, np.ndarray) or isinstance(terminated, np.ndarray):
            raise self._array_returned(*arguments)
        if not isinstance(reward, (numbers.Real, np.number)):
            raise self._problem("step", f"returns the reward {_short(reward)}; return a number")
        if not np.isfinite(float(reward)):
            self._report("step", f"returns the reward {reward!r}; a reward must be finite")
        if not isinstance(terminated, (bool, np.bool_)):
            raise self._problem("step", f"returns terminated as {terminated!r}; return a bool, such as `x > limit`")
        if not terminated:
            self._check_bounds("step")
        return bool(terminated) | self._violates_critically()

    def _violates_critically(self) -> bool:
        """Evaluate the constraints; returns whether a violation ends the episode."""
        for name in self.environment.functions.keys() - COMPILED:
            value = self._call(name, self.state, self.params)
            if not isinstance(value, (numbers.Real, np.number)):
                raise self._problem(name, f"gives {_short(value)}; return a number")
        violated = violating(self.environment)(self.state, self.params)
        return any(one.critical and violated >> place & 1 for place, one in enumerate(self.environment.constraints))

    def _check_bounds(self, name: str) -> None:
        """Report a state field beyond the bounds of its record; terminal states are not checked."""
        found = self.environment.state.beyond(self.copies.state)
        if found is not None:
            field, value = found
            low, high = self.environment.state.bounds[field]
            self._report(name, f"leaves {value} in state.{field}, which is declared to lie between {low} and {high}")

    def _look(self) -> None:
        row, mask = self._frame(), self.copies.mask[0]
        if not self._see(row, np.nan if row.dtype.kind == "f" else np.iinfo(str(row.dtype)).max):
            return
        seen = row.copy()
        if row.dtype.kind == "f":
            unwritten = np.isnan(row)
        elif not self._looked:  # integers have no NaN: elements that keep two different values are unwritten
            self._see(row, np.iinfo(str(row.dtype)).min)
            unwritten = row != seen
        else:
            unwritten = np.zeros_like(row, np.bool_)
        self._looked = True
        if unwritten.any():
            self._report_unwritten(np.argwhere(unwritten)[0])
        else:
            self._check_observation(seen)
        if self.environment.legal:
            self._write_only("legal", self.state, self.params, mask)
            if not mask.any():
                self._report("legal", "leaves no action legal; an episode in which nothing can be done must end")

    def _see(self, row: np.ndarray, before: float) -> bool:
        """Fill a row with `before`, then let the environment observe into it."""
        row[...] = before
        return self._write_frame(row)

    def _frame(self) -> np.ndarray:
        """Return the array into which the current frame is written."""
        seen = self.copies.observation[0]
        return seen if self.environment.stack == 1 else seen[-1]

    def _write_frame(self, frame: np.ndarray) -> bool:
        """Let the environment observe; returns whether its function returns nothing."""
        if self._seeing == "observe":
            return self._write_only("observe", self.state, self.params, frame)
        written = [self._write_only("observe_row", self.state, self.params, y, row) for y, row in enumerate(frame)]
        return all(written)

    def _place(self, where: Sequence[int]) -> str:
        """Format an index into the observation, in the terms of the function that writes it."""
        if self._seeing == "observe":
            return f"observation[{', '.join(map(str, where))}]"
        return f"row[{', '.join(map(str, where[1:]))}] of y={where[0]}"

    def _report_unwritten(self, where: np.ndarray) -> None:
        own = getattr(self.environment, self._seeing)
        name = own.__code__.co_varnames[WRITTEN[self._seeing]]
        if (line := bound_anew(own, name)) is None:
            self._report(self._seeing, f"leaves {self._place(where.tolist())} unwritten or NaN; write every element")
        else:
            what = f"gives the name {name} to something else, and the row that it was given stays unwritten"
            self._report(self._seeing, f"{what}; write {name}[0] = ..., or {name}[:] = ... for all", line)

    def _check_observation(self, row: np.ndarray) -> None:
        space = self.environment.frame
        if space.contains(np.int64(row[0]) if isinstance(space, Discrete) else row):
            return
        if isinstance(space, Box):
            low, high = space.low, space.high
        else:
            low, high = np.zeros_like(row), np.asarray(getattr(space, "nvec", getattr(space, "n", 0))) - 1
        wrong = tuple(np.argwhere(~((row >= low) & (row <= high)))[0])
        lowest, highest = (np.broadcast_to(bound, row.shape)[wrong] for bound in (low, high))
        what = f"writes {row[wrong]} into {self._place(wrong)}, whose space goes from {lowest} to"
        self._report(self._seeing, f"{what} {highest}; widen the space, or scale what is written")

    def _call(self, name: str, *arguments: Any) -> Any:
        function = self.environment.functions[name]
        try:
            return self._patience.call(function, *arguments)
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises is told with its line
            raise failed(self.environment, name, error) from (error if debugging() else None)

    def _write_only(self, name: str, *arguments: Any) -> bool:
        """Call a function that writes into one of its arguments; returns whether it returns nothing else."""
        returned = self._call(name, *arguments)
        written = arguments[WRITTEN[name]]
        if returned is None or (returned is written and name != "reset"):
            return True
        own = getattr(self.environment, name)
        target = own.__code__.co_varnames[WRITTEN[name]]
        example = f"{target}.{self.environment.state.fields[0]} = ..." if name == "reset" else f"{target}[0] = ..."
        what = f"returns {_short(returned)}; it writes into {target}, {example}, and returns nothing"
        self._report(name, what, next(iter(returns(own)), None))
        return False

    def _array_returned(self, *arguments: Any) -> DefinitionError:
        """Return the problem of a step that returns an array instead of a number."""
        function = self.environment.step
        names = dict(zip(function.__code__.co_varnames, arguments, strict=False))
        lines = returns(function)
        for line in lines:
            if (what := array_as_number(function, line, names)) is not None:
                return self._problem("step", what, line)
        what = "returns an array in the place of a number; write `return x[0], x[0] > limit` or the like"
        return self._problem("step", what, lines[0] if len(lines) == 1 else None)

    def _report(self, name: str, what: str, line: int | None = None) -> None:
        problem = self._problem(name, what, line)
        # Values differ from step to step; the same problem with another value is not a new one.
        self.found.setdefault(re.sub(r"[-\d.e+]+", "#", str(problem)), problem)

    def _problem(self, name: str, what: str, line: int | None = None) -> DefinitionError:
        code = self.environment.functions[name].__code__
        place = f"{code.co_filename}:{line or code.co_firstlineno}"
        return DefinitionError(described(self.environment.id, name, what, place))


def _short(value: Any) -> str:
    """Format a value briefly."""
    return "the state" if isinstance(value, Row) else reprlib.repr(value)
