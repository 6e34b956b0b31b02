"""Error messages about an environment, all in one format and in the terms of its author."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from types import FrameType, FunctionType
from typing import TYPE_CHECKING

from velocirl.engine.action_parts import action_type, has_parts
from velocirl.engine.checking.patience import TookTooLong
from velocirl.engine.checking.syntax import STATE, array_as_number, number_as_array
from velocirl.engine.compiler.caching.fingerprint import functions_reached
from velocirl.engine.errors import DefinitionError
from velocirl.engine.records import Record

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

LIBRARIES = ("velocirl", "numba", "numpy")  # whose functions are not the user's


def own_functions(environment: Environment) -> Iterator[tuple[str, FunctionType]]:
    """Yield the user's functions of an environment, helpers included, each with the name of its entry point."""
    for name, own in environment.functions.items():
        for function in sorted(functions_reached(own), key=lambda one: (one is not own, one.__code__.co_firstlineno)):
            if function is own or function.__module__.partition(".")[0] not in LIBRARIES:
                yield name, function


def failed(environment: Environment, name: str, error: Exception, moment: str = "") -> DefinitionError:
    """Return the error for an exception of an environment's function, with its line and, if known, the moment."""
    frames = list(traceback.walk_tb(error.__traceback__))
    # The innermost line of the function's own file, so that the user sees a line of theirs.
    function = environment.functions.get(name) or getattr(environment, name)  # the latter: not compiled
    file = function.__code__.co_filename
    frame, line = ([one for one in frames if one[0].f_code.co_filename == file] or frames)[-1]
    what = str(error) if isinstance(error, TookTooLong) else _explain(error, environment, frame, line)
    what += f" ({moment})" if moment else ""
    return DefinitionError(described(environment.id, name, what, f"{frame.f_code.co_filename}:{line}"))


def described(environment: str, function: str, what: str, place: str, line: str | None = None) -> str:
    """Format a message: environment, function, problem and location."""
    if line is None:
        filename, _, number = place.rpartition(":")
        line = linecache.getline(filename, int(number)).strip()
    return f"{environment}: {function} {what}\n  at {place}" + (f": {line}" if line else "")


def missing_field(name: str, environment: Environment) -> str:
    """Format the message about a field that no record has."""
    records: tuple[Record, ...] = (environment.state, environment.params)
    if has_parts(environment.action):
        records += (Record("action", action_type(environment.action), {}),)
    best = max(records, key=lambda record: ": did you mean" in record.suggestion(name))
    return f"no field {name!r} in its records ({best.name} has {', '.join(best.fields)}){_nearest(best, name)}"


def _nearest(record: Record, name: str) -> str:
    suggestion = record.suggestion(name)
    return suggestion if "did you mean" in suggestion else f"; add `{name}: float32` to the record, or remove it here"


def _explain(error: Exception, environment: Environment, frame: FrameType, line: int) -> str:
    """Explain an exception in terms of the line that raised it."""
    said, code = str(error), frame.f_code
    found = re.search(r"(?:'Row' object has no attribute|there is no field) '(\w+)", said)
    if isinstance(error, AttributeError) and found:
        return f"fails with {missing_field(found.group(1), environment)}"
    if re.search(r"\barrays?\b|sequence|truth value", said) and (what := array_as_number(code, line, frame.f_locals)):
        return what
    if re.search(r"subscript|scalar|item assignment", said) and (what := number_as_array(code, line, frame.f_locals)):
        return what
    what = f"fails with {type(error).__name__}: {said}"
    if isinstance(error, UnboundLocalError) and (name := error.args[0].split("'")[1]) in frame.f_globals:
        return f"changes {name}, a variable of the module; {STATE}"
    if isinstance(error, ZeroDivisionError):
        return f"{what}; test for zero first: compiled code gives 0, or infinity for floats"
    if isinstance(error, OverflowError) and "out of bounds for" in said:  # raised for an element of an array
        return f"{what}, and would be wrapped around in compiled code; declare a wider type, such as int32"
    if isinstance(error, TypeError) and "'Record' object is not callable" in said:
        return f"{what}; a record is written field by field, state.{environment.state.fields[0]} = ..."
    if isinstance(error, AttributeError) and (method := re.search(r"'numpy.ndarray' object has no .* '(\w+)'", said)):
        return f"{what}; where that is rng, write random.{_drawing(method[1])}(rng), with `from velocirl import random`"
    return what


def _drawing(method: str) -> str:
    """Return the function of `velocirl.random` nearest to a method of NumPy's generators."""
    return {"integers": "integer", "randint": "integer", "standard_normal": "normal", "normal": "normal"}.get(
        method, "uniform"
    )
