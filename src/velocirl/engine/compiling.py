"""From plain Python functions to compiled ones: each function, and every function it calls, unchanged in source."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType, FunctionType, ModuleType
from typing import Any

import numba
from numba.core.compiler import Compiler
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target

from velocirl.engine import elementary, registers
from velocirl.engine.cache import ContentCache
from velocirl.engine.fingerprint import fingerprint, names_used
from velocirl.engine.precision import single, single_precision
from velocirl.engine.records import FieldType

# No 'nnan' and no 'ninf': a guard against NaN must stay able to see one. The numpy error model leaves out the test
# for zero before each division, without which no loop with a division is vectorised.
FAST = {"contract", "reassoc", "arcp", "nsz", "afn"}
OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
INLINED: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True, **OPTIONS}  # never called from Python


class _DisjointArguments(Compiler):
    """Compiles a loop in the knowledge that its arrays do not overlap, which is what lets LLVM vectorise it."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


class Translator:
    """Turns scalar functions into compiled ones for one target; each function is translated once."""

    def __init__(self, *, double: bool, target: str) -> None:
        self.double = double
        self._done: dict[Any, Any] = {}
        if target == "cpu":
            self._done |= registers.COMPILED
            if not double:
                self._done |= {math.sin: self.exact(elementary.sin), math.cos: self.exact(elementary.cos)}

    def scalar(self, function: FunctionType) -> Dispatcher:
        """A compiled scalar function, always inlined into the loop that calls it."""
        return self._translate(function, {"fastmath": FAST, **INLINED})

    def exact(self, function: FunctionType) -> Dispatcher:
        """The same without reordering of sums: for arithmetic whose order is the point."""
        return self._translate(function, {"fastmath": {"contract"}, **INLINED})

    def loop(self, function: FunctionType) -> Dispatcher:
        """A compiled loop over arrays that do not overlap."""
        return self._translate(function, {"fastmath": FAST, "pipeline_class": _DisjointArguments, **OPTIONS})

    def plain(self, function: FunctionType) -> FunctionType:
        """The translated function itself, for a compiler of its own (CUDA kernels)."""
        return self._translated(function, {}, self._options_of_helpers)

    _options_of_helpers: dict[str, Any] = {"fastmath": FAST, **INLINED}

    def _translate(self, function: FunctionType, options: dict[str, Any]) -> Dispatcher:
        if function not in self._done:
            namespace: dict[str, Any] = {}
            # The dispatcher is known before the globals are translated, so that a function may call itself.
            self._done[function] = numba.njit(**options)(self._shell(function, namespace))
            helper_options = options if "forceinline" in options else self._options_of_helpers
            self._fill(namespace, function, helper_options)
        return self._done[function]

    def _translated(self, function: FunctionType, namespace: dict[str, Any], options: dict[str, Any]) -> FunctionType:
        shell = self._shell(function, namespace)
        self._fill(namespace, function, options)
        return shell

    def _shell(self, function: FunctionType, namespace: dict[str, Any]) -> FunctionType:
        code = function.__code__ if self.double else single(function.__code__)
        defaults = tuple(self._value(value, {}, set()) for value in function.__defaults__ or ()) or None
        cells = tuple(CellType(self._value(c.cell_contents, self._options_of_helpers, set()))
                      for c in function.__closure__ or ())  # fmt: skip
        shell = FunctionType(code, namespace, function.__name__, defaults, cells)
        shell.__module__, shell.__qualname__ = function.__module__, function.__qualname__
        return shell

    def _fill(self, namespace: dict[str, Any], function: FunctionType, options: dict[str, Any]) -> None:
        used = names_used(function.__code__)
        namespace.update(function.__globals__)
        for name in used & function.__globals__.keys():
            namespace[name] = self._value(function.__globals__[name], options, used)

    def _value(self, value: Any, options: dict[str, Any], used: set[str]) -> Any:
        """A constant or callable that a function refers to, as the compiled function should see it."""
        try:
            if value in self._done:
                return self._done[value]
        except (TypeError, ValueError):  # not hashable: a constant array
            pass
        if isinstance(value, FunctionType):
            return self._translate(value, options)
        if isinstance(value, FieldType):
            return value.scalar
        if isinstance(value, ModuleType):
            return self._module(value, options, used)
        return value if self.double else single(value)

    def _module(self, module: ModuleType, options: dict[str, Any], used: set[str]) -> ModuleType:
        """A module whose attributes that the function may use are translated too: `random.uniform`, `math.pi`."""
        attributes = {name: vars(module)[name] for name in used & vars(module).keys()}
        changed = {name: new for name, old in attributes.items()
                   if (new := self._value(old, options, used)) is not old}  # fmt: skip
        if not changed:
            return module
        twin = ModuleType(module.__name__)
        vars(twin).update({**vars(module), **changed})
        return twin


@contextmanager
def _settings(double: bool) -> Iterator[None]:
    """Numba as we need it while our own functions compile: our typing rule, and full optimisation from the start."""
    typing_context = cpu_target.typing_context
    codegen = cpu_target.target_context.codegen()
    before = codegen._opt_level, codegen._loopvect
    # Without this, numba runs a weaker pass first, which moves loads into branches and so prevents vectorisation.
    codegen._opt_level, codegen._loopvect = 3, True
    try:
        if double:
            yield
        else:
            with single_precision(typing_context):
                yield
    finally:
        codegen._opt_level, codegen._loopvect = before


def compile_loop(function: FunctionType, arguments: tuple[Any, ...], translator: Translator) -> Callable[..., Any]:
    """Compile a loop for the types of these arguments, or take it from the disk cache; returns its bare entry point.

    The entry point skips numba's dispatch on types, so it must be called with arrays of just these types.
    """
    dispatcher = translator.loop(function)
    signature = tuple(numba.typeof(argument) for argument in arguments)
    key = fingerprint(function, translator.double, FAST, _settings, *vars(Translator).values())
    dispatcher._cache = ContentCache(function, key)
    with _settings(translator.double):
        dispatcher.compile(signature)
    return dispatcher.overloads[signature].entry_point
