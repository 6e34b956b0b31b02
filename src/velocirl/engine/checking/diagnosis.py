"""Translation of numba's errors into messages about the user's own line."""

from __future__ import annotations

import linecache
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
from numba.core.compiler import run_frontend

from velocirl.engine.checking.syntax import Finding, without_form
from velocirl.engine.checking.telling import described, missing_field, own_functions
from velocirl.engine.compiler.printing import NEEDS_INTERPRETER
from velocirl.engine.errors import DefinitionError

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment

ALLOWED = "numbers, small arrays, if/for/while, math, velocirl.random and helper functions"
_LIBRARIES = tuple(f"{Path(file).resolve().parent}{os.sep}" for file in (Path(__file__).parents[1], numba.__file__))
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PLACES = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LOWERED = re.compile(r'^During: lowering ".*" at (?P<file>.+) \((?P<line>\d+)\)$', re.MULTILINE)
# Patterns of numba's messages and their replacements, tried in this order.
_MEANINGS = [
    (
        NEEDS_INTERPRETER,
        "needs Python's interpreter, which compiled code does without; numbers and text can be printed, and"
        ' device="python" runs it as it is',
    ),
    (
        r"Untyped global name '(\w+)'.*?Cannot determine Numba type of <class '([^']+)'>",
        "uses {0}, a {1}, which has no compiled form; use numbers, tuples of numbers, NumPy arrays or plain functions",
    ),
    (
        r"NameError: name '(\w+)' is not defined|Untyped global name '(\w+)'",
        "uses {0}, which is not defined where the function was written; define it above, or pass it in Params",
    ),
    (
        r"Cannot unify (.+?) and (.+?) for '([\w.]+)'",
        "gives {2} values of different kinds ({0} and {1}); let it be the same kind on every path",
    ),
    (r"Unknown attribute '(\w+)' of type Record", "{field}"),
    (
        r"Can't unify return type from the following types: (.+)",
        "returns different kinds of values on different paths ({0}); return the same kinds everywhere",
    ),
]
# More general patterns, tried after the source itself.
_GENERAL = [
    (
        r"Function\(<function clip ",
        "uses np.clip on a number, which has no compiled form; write min(max(x, low), high)",
    ),
    (
        r"Use of unsupported opcode \((\w+)\)|The '?(\w+)'? .*?(?:is|are) not supported|[Uu]nsupported",
        "uses Python that has no compiled form; write it with " + ALLOWED,
    ),
    (
        r"No implementation of function Function\(<(?:built-in|ufunc|class)? ?(?:function )?'?([\w.]+)",
        "uses {0} on values it has no compiled form for; write it with " + ALLOWED,
    ),
    (
        r"Unknown attribute '(\w+)' of type Module\(<module '(\w+)'",
        "uses {1}.{0}, which has no compiled form; write it with " + ALLOWED,
    ),
    (
        r"Unknown attribute '(\w+)' of type (\S+)",
        "uses .{0} of a {1}, which has no compiled form; write it with " + ALLOWED,
    ),
]


def diagnose(environment: Environment, error: Exception) -> DefinitionError:
    """Return an error for a failed compilation, with the user's function and line that caused it."""
    text = _COLOURS.sub("", str(error)) or type(error).__name__
    function, place = _place(environment, text)
    what = _meaning(environment, text, _MEANINGS)
    if what is None and (seen := _seen(environment, place)) is not None:
        function, place, what = seen
    what = what or _meaning(environment, text, _GENERAL)
    if what is None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        says = next((line for line in lines if not line.startswith("Failed in nopython")), lines[0])
        what = f"cannot be compiled: {says}; write it with {ALLOWED}"
    return DefinitionError(
        described(environment.id, function, what, place) + "\n  (VELOCIRL_DEBUG=1 shows the compiler's own message)"
    )


def _meaning(environment: Environment, text: str, meanings: list[tuple[str, str]]) -> str | None:
    """Return the replacement for numba's message, or None if no pattern matches."""
    for pattern, meaning in meanings:
        if found := re.search(pattern, text, re.DOTALL):
            groups = [group for group in found.groups() if group is not None]
            field = f"cannot be compiled: {missing_field(groups[0], environment)}" if "{field}" in meaning else ""
            return meaning.format(*groups, *[""] * 3, field=field)
    return None


def _seen(environment: Environment, place: str) -> tuple[str, str, str] | None:
    """Find code without a compiled form at a location or, if that is a function's first line, in any function."""
    file, _, number = place.rpartition(":")
    functions = list(own_functions(environment))
    begins = [int(number) == function.__code__.co_firstlineno for _, function in functions]
    for line in (int(number), None) if any(begins) else (int(number),):
        for name, function in functions:
            code = function.__code__
            if line is not None and os.path.realpath(code.co_filename) != os.path.realpath(file):
                continue
            found: Finding | None = without_form(function, line)
            if found is not None:
                return name, f"{code.co_filename}:{found.line}", found.what
    return None


def _place(environment: Environment, text: str) -> tuple[str, str]:
    """Return the function and location in numba's message; a helper is attributed to the function that calls it."""
    functions = environment.functions
    files = {os.path.realpath(function.__code__.co_filename) for function in functions.values()}
    # Numba shortens file names to relative ones.
    places = [(os.path.realpath(found["file"]), int(found["line"])) for found in _places(text)]
    inside = [place for place in places if place[0] in files] or places
    for file, line in inside:  # from the innermost call outwards
        for name, function in functions.items():
            code = function.__code__
            last = max((number for _, _, number in code.co_lines() if number is not None), default=0)
            if file == os.path.realpath(code.co_filename) and code.co_firstlineno <= line <= last:
                return name, f"{inside[0][0]}:{inside[0][1]}"
    if inside and (inside[0][0] in files or not inside[0][0].startswith(_LIBRARIES)):
        return "a helper function", f"{inside[0][0]}:{inside[0][1]}"
    called = [linecache.getline(*one) for one in inside]  # lines of this package that call one of the functions
    name = next((name for name in functions if any(f"{name}(" in line for line in called)), None)
    name = name or next((name for name, function in functions.items() if not _readable(function)), "step")
    code = functions[name].__code__
    return name, f"{code.co_filename}:{code.co_firstlineno}"


def _places(text: str) -> list[re.Match[str]]:
    return list(_PLACES.finditer(text)) or list(_LOWERED.finditer(text))


def _readable(function: Any) -> bool:
    """Return whether numba can read a function's bytecode; if not, its message names no line."""
    try:
        run_frontend(function)
    except Exception:  # noqa: BLE001 - any failure is the answer
        return False
    return True
