"""Hash of all dependencies of a compiled function: code, constants, and everything reachable from its globals.

The hash follows the values themselves, not files and dates. A changed helper in another file, a changed constant in a
notebook, or an upgraded compiler or engine each yield a new hash. A moved or reformatted file yields the old one.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterator, Mapping
from enum import Enum, EnumType
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np

from velocirl.engine.records import FieldType

# The modules that decide how a function is compiled, and what compiled code substitutes for a function's names; all
# other code that it calls is followed from the function itself.
_COMPILER = (
    "compiling", "frames", "linking", "printing", "translating", "units", "clock", "columns", "lanes", "registers",
    "caching/fingerprint", "arithmetic/clearing", "arithmetic/elementary", "arithmetic/precision",
    "arithmetic/products", "arithmetic/vectors", "../targets/cuda_kernels", "../targets/cuda_units",
    "../targets/rounding", "../targets/warps",
)  # fmt: skip


@cache
def _compiler() -> bytes:
    """Hash everything that turns functions into machine code: Python, numba, LLVM, NumPy and the engine's compiler."""
    versions = f"{sys.version_info[:3]} {numba.__version__} {llvmlite.__version__} {np.__version__}"
    sources = [Path(__file__).parents[1] / f"{name}.py" for name in _COMPILER]
    return hashlib.sha256(versions.encode() + b"".join(source.read_bytes() for source in sources)).digest()


def names_used(code: CodeType) -> set[str]:
    """Return the global and attribute names that a function and its nested functions may look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_used(constant)
    return names


def attributes_used(code: CodeType, name: str) -> set[str]:
    """Return the attributes that a function, or a nested one, looks up directly on a global: {"pi"} for `math.pi`."""
    instructions = list(dis.get_instructions(code))
    found = {
        after.argval
        for before, after in pairwise(instructions)
        if before.opname == "LOAD_GLOBAL" and before.argval == name and after.opname in ("LOAD_ATTR", "LOAD_METHOD")
    }
    nested = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return found.union(*(attributes_used(constant, name) for constant in nested))


def names_reached(*functions: FunctionType) -> frozenset[str]:
    """Return the names that functions, and all functions that they may call, look up."""
    return frozenset().union(*(names_used(function.__code__) for function in functions_reached(*functions)))


def names_written(*functions: FunctionType) -> frozenset[str]:
    """Return the attribute names that functions, and all they may call, may write; string constants count too."""
    found = [dis.get_instructions(function.__code__) for function in functions_reached(*functions)]
    written = [one.argval for some in found for one in some if one.opname in ("STORE_ATTR", "LOAD_CONST")]
    return frozenset(name for name in written if isinstance(name, str))


def functions_reached(*functions: FunctionType) -> set[FunctionType]:
    """Return functions and all functions that they may call."""
    reached: set[FunctionType] = set()
    waiting: list[Any] = list(functions)
    while waiting:
        function = python_function(waiting.pop())
        if function is None or function in reached:
            continue
        reached.add(function)
        used = names_used(function.__code__)
        held = [cell.cell_contents for cell in function.__closure__ or ()]
        held += [function.__globals__[name] for name in used & function.__globals__.keys()]
        for value in held:
            if isinstance(value, ModuleType):
                waiting += [vars(value)[name] for name in used & vars(value).keys()]
            else:
                waiting += value if isinstance(value, tuple) else [value]
    return reached


def python_function(value: Any) -> FunctionType | None:
    """Return the Python function in a value that the compiler can call, itself or in a numba decorator, or None."""
    for candidate in (value, getattr(value, "py_func", None), getattr(value, "_defn", None)):
        if isinstance(candidate, FunctionType):
            return candidate
    return None


def fingerprint(*values: Any) -> str:
    """Return a hash of functions and constants with all their dependencies."""
    digest = hashlib.sha256(_compiler())
    seen: dict[Any, int] = {}
    for value in values:
        for part in _parts(value, frozenset(), seen):
            digest.update(part.encode() if isinstance(part, str) else part)
            digest.update(b"\0")
    return digest.hexdigest()


def _parts(value: Any, used: frozenset[str], seen: dict[Any, int]) -> Iterator[str | bytes]:
    """Yield the components of a value; `used` are the names that the function referring to it may look up."""
    function = python_function(value)
    if function is not None or isinstance(value, ModuleType):
        key = id(function) if function is not None else (id(value), used)
        if key in seen:
            yield f"seen {seen[key]}"
            return
        seen[key] = len(seen)
    if function is not None:
        used = frozenset(names_used(function.__code__))
        yield from _parts(function.__code__, used, seen)
        yield from _parts(function.__defaults__ or (), used, seen)
        for cell in function.__closure__ or ():
            yield from _parts(cell.cell_contents, used, seen)
        yield from _attributes(function.__globals__, used, seen)
    elif isinstance(value, ModuleType):  # only what the function can reach through the names it uses
        yield value.__name__
        yield from _attributes(vars(value), used, seen)
    elif isinstance(value, CodeType):
        yield value.co_code
        yield f"{value.co_names} {value.co_varnames} {value.co_freevars} {value.co_argcount}"
        yield from _parts(value.co_consts, used, seen)
    elif isinstance(value, (tuple, list)):
        yield f"{type(value).__name__} {len(value)} {getattr(value, '_fields', ())}"
        for item in value:
            yield from _parts(item, used, seen)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}"
        yield value.tobytes()
    else:
        yield from _described(value)


def _attributes(names: Mapping[str, Any], used: frozenset[str], seen: dict[Any, int]) -> Iterator[str | bytes]:
    for name in sorted(used & names.keys()):
        yield name
        yield from _parts(names[name], used, seen)


def _described(value: Any) -> Iterator[str]:
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, Enum, FieldType)):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, numba.types.Type):
        yield f"type {value}"
    elif isinstance(value, frozenset):
        yield f"frozenset {sorted(map(repr, value))}"
    elif isinstance(value, EnumType):
        yield f"{value.__name__} {list(value)!r}"
    else:  # classes and built-in functions: identified by name; their behavior is their package's version
        name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
        yield f"{type(value).__name__} {getattr(value, '__module__', '')}.{name}"
