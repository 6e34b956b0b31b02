"""Numba for the CPU: inlined scalar functions, vectorized loops over them, and a cache by content."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numba
from numba import types
from numba.core.callconv import NumpyErrorModel, error_models
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from velocirl.engine.compiler import clock, columns, registers
from velocirl.engine.compiler.arithmetic import clearing, elementary, products
from velocirl.engine.compiler.arithmetic.precision import single_precision
from velocirl.engine.compiler.caching.cache import open_cache
from velocirl.engine.compiler.caching.fingerprint import fingerprint
from velocirl.engine.compiler.linking import arguments_uncounted, linked_once, untimed
from velocirl.engine.compiler.printing import no_interpreter
from velocirl.engine.compiler.translating import Shared, Translator

# No fast-math flag, not even fused multiply-add. With any, a loop's vector body and its scalar remainder round
# differently, and an environment's results would depend on the number of environments. The numpy error model omits the
# zero test before each division, which would prevent vectorization of a loop with a division.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
# Our loops allocate nothing, so no references need counting. Numba would count a tuple's arrays whenever it is passed
# on, with locked instructions, which took a third of a rollout's time.
UNCOUNTED: dict[str, Any] = {"_nrt": False}
_LOADED: dict[Any, Any] = {}  # the loops of this process, by cache directory, fingerprint and signature
INLINED: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True, **OPTIONS}  # never called from Python
COUNTED: dict[str, Any] = {"_nrt": True}  # an environment's functions may allocate
CHECKED: dict[str, Any] = {"boundscheck": True, "error_model": "whole_numbers"}  # see `engine.checking.checked`
# Learners may fuse a multiplication with an addition: a sample's gradient does not depend on its neighbors anyway. More
# freedom would hide NaNs or undo the accuracy of the elementary functions.
LEARNING: dict[str, Any] = {"fastmath": {"contract"}, **UNCOUNTED}


class DisjointArguments(Compiler):
    """Compiler of loops whose arrays do not overlap, which allows LLVM to vectorize them."""

    def define_pipelines(self) -> Any:
        """Return numba's own pipelines, with the no-alias flag set."""
        self.state.flags.noalias = True
        return super().define_pipelines()


class WholeNumberErrors(NumpyErrorModel):
    """NumPy's error model for float division by zero; integer division by zero raises."""

    def fp_zero_division(self, builder: Any, exc_args: Any = None, loc: Any = None) -> bool:
        """Generate the division-by-zero case; returns whether it raises."""
        whole = bool(exc_args) and exc_args[0].startswith("integer")
        if whole:
            self.call_conv.return_user_exc(builder, ZeroDivisionError, exc_args, loc)
        return whole


error_models["whole_numbers"] = WholeNumberErrors


def cpu_translator(name: str, *, double: bool, check: bool = False) -> Translator:
    """Return a translator to functions that numba inlines into their loops; with bounds checks if `check`."""
    kind, manner = _strict(double, check), "check" if check else ""
    return Translator(
        name, double=double, compiled=kind.compiled, substitutes=kind.substitutes, shared=kind.shared, manner=manner
    )


def learning_translator(name: str) -> Translator:
    """Return a translator for networks, losses and optimizers: single precision, fused multiply-add."""
    kind = _learning()
    return Translator(
        name, double=False, compiled=kind.compiled, substitutes=kind.substitutes, shared=kind.shared, manner="learning"
    )


class _Kind(NamedTuple):
    """Shared properties of all translators of a kind."""

    compiled: Any
    substitutes: dict[Any, Any]
    shared: Shared


@cache
def _strict(double: bool, check: bool) -> _Kind:
    known = {**registers.COMPILED, **clock.COMPILED, **clearing.COMPILED}
    options = {**INLINED, **COUNTED, **(CHECKED if check else {})}
    return _kind(numba.njit(**options), known, () if double else ("sin", "cos", "exp"), double)


@cache
def _learning() -> _Kind:
    known = {**registers.COMPILED, **clock.COMPILED, **columns.COMPILED, **products.COMPILED}
    real = ("sin", "cos", "exp", "expm1", "log", "tanh", "erf")
    return _kind(numba.njit(**INLINED, **LEARNING), known, real, False)


def _kind(compiled: Any, known: dict[Any, Any], real: Iterable[str], double: bool) -> _Kind:
    translator = Translator("elementary", double=double, compiled=compiled, substitutes=known)
    for function in real:
        translator.substitute(getattr(math, function), getattr(elementary, function))
    return _Kind(compiled, translator.known, Shared())


def add_kernel(translator: Translator, function: FunctionType, *, disjoint: bool = True) -> Any:
    """Compile a function that later functions of this translator call instead of inlining it.

    With `disjoint`, its arrays must not overlap, except in the same element of the same step of a loop.
    """
    options = {**OPTIONS, **LEARNING, "no_cpython_wrapper": True}
    if disjoint:
        options["pipeline_class"] = DisjointArguments
    kernel = numba.njit(**options)(named(function, translator))
    translator.adopt(function, kernel)
    return kernel


def compile_loop(
    function: FunctionType, arguments: tuple[Any, ...], translator: Translator, before: Callable[[], None]
) -> Callable[..., Any]:
    """Compile a loop for the types of these arguments, or load it from the disk cache; returns its bare entry point.

    `before` is called if compilation is needed. The entry point skips numba's type dispatch, so it must be called with
    arrays of exactly these types.
    """
    signature = tuple(numba.typeof(argument) for argument in arguments)
    key = fingerprint(function, translator.double, translator.manner)
    cache = open_cache(function, key, before)
    place = (cache.cache_path, key, signature)
    if place not in _LOADED:  # machine code is never unloaded, so each function is loaded once
        _LOADED[place] = _load(function, signature, translator, cache)
    return _LOADED[place].overloads[signature].entry_point


def named(function: FunctionType, translator: Translator) -> FunctionType:
    """Return a translated function whose machine code is named after its content.

    Numba numbers functions per process. If a third process loads code compiled by two others, two functions with the
    same name and number would be confused.
    """
    shell = translator.loop(function)
    shell.__qualname__ += f".{fingerprint(function, translator.double, translator.manner)[:16]}"
    return shell


def _load(function: FunctionType, signature: tuple[Any, ...], translator: Translator, cache: Any) -> Any:
    options = {"pipeline_class": DisjointArguments, **OPTIONS, **UNCOUNTED}
    dispatcher: Any = numba.njit(**options)(named(function, translator))
    dispatcher._cache = cache
    with compiler_settings(translator.double):
        dispatcher.compile(signature)
    return dispatcher


@contextmanager
def compiler_settings(double: bool) -> Iterator[None]:
    """Apply this library's numba settings in this context: its typing rule, and full optimization from the start.

    The garbage collector is off: it would take an eighth of the time and free next to nothing.
    """
    codegen: Any = cpu_target.target_context.codegen()  # pyright: ignore[reportAttributeAccessIssue]
    with global_compiler_lock:
        before, collecting = (codegen._opt_level, codegen._loopvect), gc.isenabled()
        gc.disable()
        # Without this, numba runs a weaker pass first, which moves loads into branches and so prevents vectorization.
        codegen._opt_level, codegen._loopvect = 3, True
        # Numba accepts a record for any other one that begins with the same fields. Functions are shared by units, and
        # would read one environment's state as if it were another's.
        record: Any = types.Record
        convert, record.can_convert_to = record.can_convert_to, lambda *_: None
        rule = nullcontext() if double else single_precision(cpu_target.typing_context, types)
        try:
            with linked_once(codegen), arguments_uncounted(), untimed(), no_interpreter(), rule:
                yield
        finally:
            codegen._opt_level, codegen._loopvect = before
            record.can_convert_to = convert
            if collecting:
                gc.enable()
