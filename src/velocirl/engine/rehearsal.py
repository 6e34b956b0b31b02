"""A short run in plain Python before an environment is compiled.

Compiled code has no bounds checks and numba's messages speak of its own types. Plain Python finds a field that does
not exist, an index out of range or a wrong return at the very line, so an environment is compiled only after that.
"""

from __future__ import annotations

import linecache
import numbers
import re
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from velocirl.engine import random
from velocirl.engine.errors import DefinitionError, debugging
from velocirl.engine.fleet import allocate
from velocirl.engine.patience import Patience, TookTooLong
from velocirl.engine.records import Record, with_attributes
from velocirl.engine.sampling import sampler

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

STEPS = 32


def rehearse(environment: Environment, params: np.ndarray) -> None:
    """Run one copy for some random steps and raise the first problem, with its line and what to write instead."""
    with np.errstate(all="ignore"):
        for problem in problems(environment, params, STEPS):
            raise problem


def problems(environment: Environment, params: np.ndarray, steps: int, seed: int = 0) -> list[DefinitionError]:
    """What is wrong in a run of `steps` random steps; after an exception in a function the run ends."""
    try:
        return _Run(environment, params, seed).run(steps)
    except DefinitionError as problem:
        return [problem]


def try_state(environment: Environment, state: np.ndarray, params: np.ndarray, rng: np.ndarray) -> None:
    """Let one copy look around and take a step from a state (1,) that somebody gave, and raise what goes wrong."""
    run = _Run(environment, params, 0)
    run.copies.state[:], run.copies.rng[:] = state, rng
    with np.errstate(all="ignore"):
        run.look_and_step()


class _Run:
    """One copy in plain Python, each call watched."""

    def __init__(self, environment: Environment, params: np.ndarray, seed: int) -> None:
        self.environment = environment
        self.copies = allocate(environment, 1, {})
        self.copies.rng[:] = random.streams(seed, 1)
        self.copies.params[:] = params[:1]
        self.state = with_attributes(self.copies.state)[0]
        self.params = with_attributes(self.copies.params)[0]
        self.rng = self.copies.rng[0]
        self._patience = Patience()
        self.found: dict[str, DefinitionError] = {}  # by message: each problem is told once

    def run(self, steps: int) -> list[DefinitionError]:
        choose = sampler(self.environment)
        with self._patience:
            self._begin()
            for _ in range(steps):
                choose(self.copies, 0)
                if self._step(self.copies.action[0]):
                    self._begin()
                else:
                    self._look()
        return list(self.found.values())

    def look_and_step(self) -> None:
        """See and step once from where the copy is."""
        row, mask = self.copies.observation[0], self.copies.mask[0]
        with self._patience:
            self._call("observe", self.state, self.params, row)
            if self.environment.legal:
                self._call("legal", self.state, self.params, mask)
            sampler(self.environment)(self.copies, 0)
            self._step(self.copies.action[0])
            self._call("observe", self.state, self.params, row)

    def _begin(self) -> None:
        if (returned := self._call("reset", self.state, self.params, self.rng)) is not None:
            self._report("reset", f"returns {returned!r}; it writes into state and returns nothing")
        self._check_bounds("reset")
        self._look()

    def _step(self, action: Any) -> bool:
        returned = self._call("step", self.state, self.params, action, self.rng)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise self._problem("step", f"returns {returned!r}; write `return reward, terminated`")
        reward, terminated = returned
        if not isinstance(reward, (numbers.Real, np.number)):
            raise self._problem("step", f"returns the reward {reward!r}; return a number")
        if not np.isfinite(float(reward)):
            self._report("step", f"returns the reward {reward!r}; a reward must be finite")
        if not isinstance(terminated, (bool, np.bool_)):
            raise self._problem("step", f"returns terminated as {terminated!r}; return a bool, such as `x > limit`")
        if not terminated:
            self._check_bounds("step")
        return bool(terminated)

    def _check_bounds(self, name: str) -> None:
        """While an episode goes on, fields lie between the bounds that the record gives them."""
        found = self.environment.state.beyond(self.copies.state)
        if found is not None:
            field, value = found
            low, high = self.environment.state.bounds[field]
            self._report(name, f"leaves {value} in state.{field}, which is declared to lie between {low} and {high}")

    def _look(self) -> None:
        row, mask = self.copies.observation[0], self.copies.mask[0]
        row[...] = np.nan if row.dtype.kind == "f" else np.iinfo(str(row.dtype)).max  # to see what stays unwritten
        self._call("observe", self.state, self.params, row)
        self._check_observation(row)
        if self.environment.legal:
            self._call("legal", self.state, self.params, mask)
            if not mask.any():
                self._report("legal", "leaves no action legal; an episode in which nothing can be done must end")

    def _check_observation(self, row: np.ndarray) -> None:
        space = self.environment.observation
        if space.contains(np.int64(row[0]) if isinstance(space, Discrete) else row):
            return
        if isinstance(space, Box):
            low, high = space.low, space.high
        else:
            low, high = np.zeros_like(row), np.asarray(getattr(space, "nvec", getattr(space, "n", 0))) - 1
        wrong = np.argwhere(~((row >= low) & (row <= high)))[0]
        where = ", ".join(map(str, wrong))
        value = row[tuple(wrong)]
        if np.isnan(value):
            self._report("observe", f"leaves observation[{where}] unwritten or NaN; write every element")
        else:
            lowest, highest = (np.broadcast_to(bound, row.shape)[tuple(wrong)] for bound in (low, high))
            what = f"writes {value} into observation[{where}], whose space goes from {lowest} to {highest}"
            self._report("observe", f"{what}; widen the space, or scale what is written")

    def _call(self, name: str, *arguments: Any) -> Any:
        function = getattr(self.environment, name)
        try:
            return self._patience.call(function, *arguments)
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises is told with its line
            raise failed(self.environment, name, error) from (error if debugging() else None)

    def _report(self, name: str, what: str) -> None:
        problem = self._problem(name, what)
        # Numbers differ from step to step; the same complaint about another value is not a new one.
        self.found.setdefault(re.sub(r"[-\d.e+]+", "#", str(problem)), problem)

    def _problem(self, name: str, what: str) -> DefinitionError:
        code = getattr(self.environment, name).__code__
        return DefinitionError(described(self.environment.id, name, what, f"{code.co_filename}:{code.co_firstlineno}"))


def failed(environment: Environment, name: str, error: Exception, moment: str = "") -> DefinitionError:
    """What one of an environment's functions raised in plain Python, with its line and, if known, the moment."""
    frames = traceback.extract_tb(error.__traceback__)
    # The innermost line of a file that is not a library's, so that the user sees a line of theirs.
    file = getattr(environment, name).__code__.co_filename
    own = [frame for frame in frames if frame.filename == file] or frames
    what = str(error) if isinstance(error, TookTooLong) else f"fails with {_explain(error, environment)}"
    what += f" ({moment})" if moment else ""
    place = f"{own[-1].filename}:{own[-1].lineno}"
    return DefinitionError(described(environment.id, name, what, place, own[-1].line))


def described(environment: str, function: str, what: str, place: str, line: str | None = None) -> str:
    """One message of one shape: environment, function, what is wrong, where."""
    if line is None:
        filename, _, number = place.rpartition(":")
        line = linecache.getline(filename, int(number)).strip()
    return f"{environment}: {function} {what}\n  at {place}" + (f": {line}" if line else "")


def missing_field(name: str, environment: Environment) -> str:
    """What to say when a function uses a field that no record has."""
    records: tuple[Record, ...] = (environment.state, environment.params)
    best = max(records, key=lambda record: ": did you mean" in record.suggestion(name))
    return f"no field {name!r} in its records ({best.name} has {', '.join(best.fields)}){_nearest(best, name)}"


def _nearest(record: Record, name: str) -> str:
    suggestion = record.suggestion(name)
    return suggestion if "did you mean" in suggestion else f"; add `{name}: float32` to the record, or remove it here"


def _explain(error: Exception, environment: Environment) -> str:
    found = re.search(r"(?:'Row' object has no attribute|there is no field) '(\w+)", str(error))
    if isinstance(error, AttributeError) and found:
        return missing_field(found.group(1), environment)
    if isinstance(error, ZeroDivisionError):
        return f"ZeroDivisionError: {error}; test for zero first: compiled code gives 0, or infinity for floats"
    return f"{type(error).__name__}: {error}"
