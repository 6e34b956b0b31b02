"""Numba as we need it for the CPU: inlined scalar functions, vectorised loops over them, and a cache by content."""

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

# No fast-math flag, not even fused multiply-add: with any of them the vector body of a loop and its scalar rest round
# differently, and a copy's life would depend on how many others there are. The numpy error model leaves out the test
# for zero before each division, without which no loop with a division is vectorised.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
# Our own loops allocate nothing, so that nothing in them has to be counted; numba would count the arrays of a tuple
# whenever it is handed on, with locked instructions, and did so for a third of the time of a rollout.
UNCOUNTED: dict[str, Any] = {"_nrt": False}
_LOADED: dict[Any, Any] = {}  # the loops of this process, by place of their cache, fingerprint and signature
INLINED: dict[str, Any] = {"forceinline": True, "no_cpython_wrapper": True, **OPTIONS}  # never called from Python
COUNTED: dict[str, Any] = {"_nrt": True}  # an environment's functions may allocate
CHECKED: dict[str, Any] = {"boundscheck": True, "error_model": "whole_numbers"}  # see `engine.checking.checked`
# Learners may fuse a multiplication with an addition: a sample's gradient does not depend on its neighbours' anyway.
# Any further freedom would hide NaNs or undo the care of the elementary functions.
LEARNING: dict[str, Any] = {"fastmath": {"contract"}, **UNCOUNTED}


class DisjointArguments(Compiler):
    """Compiles a loop in the knowledge that its arrays do not overlap, which is what lets LLVM vectorise it."""

    def define_pipelines(self) -> Any:
        """Numba's own, with that knowledge."""
        self.state.flags.noalias = True
        return super().define_pipelines()


class WholeNumberErrors(NumpyErrorModel):
    """NumPy's results of a division by zero for floats; of whole numbers, it raises."""

    def fp_zero_division(self, builder: Any, exc_args: Any = None, loc: Any = None) -> bool:
        """Numba asks here whether it raised."""
        whole = bool(exc_args) and exc_args[0].startswith("integer")
        if whole:
            self.call_conv.return_user_exc(builder, ZeroDivisionError, exc_args, loc)
        return whole


error_models["whole_numbers"] = WholeNumberErrors


def cpu_translator(name: str, *, double: bool, check: bool = False) -> Translator:
    """A translator to functions that numba inlines into the loops that call them; with tests of indices if wanted."""
    kind, manner = _strict(double, check), "check" if check else ""
    return Translator(
        name, double=double, compiled=kind.compiled, substitutes=kind.substitutes, shared=kind.shared, manner=manner
    )


def learning_translator(name: str) -> Translator:
    """A translator for what networks, losses and optimisers are made of: single precision, fused multiply-add."""
    kind = _learning()
    return Translator(
        name, double=False, compiled=kind.compiled, substitutes=kind.substitutes, shared=kind.shared, manner="learning"
    )


class _Kind(NamedTuple):
    """What all translators of a kind have in common."""

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
    """Compile a function as one that is called, not inlined, for all later functions of this translator.

    With `disjoint`, its arrays must not overlap, other than in the same element of the same step of a loop.
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
    """Compile a loop for the types of these arguments, or take it from the disk cache; returns its bare entry point.

    `before` is called if there is really something to compile. The entry point skips numba's dispatch on types, so it
    must be called with arrays of just these types.
    """
    signature = tuple(numba.typeof(argument) for argument in arguments)
    key = fingerprint(function, translator.double, translator.manner)
    cache = open_cache(function, key, before)
    place = (cache.cache_path, key, signature)
    if place not in _LOADED:  # machine code is never unloaded, so each function is loaded once
        _LOADED[place] = _load(function, signature, translator, cache)
    return _LOADED[place].overloads[signature].entry_point


def named(function: FunctionType, translator: Translator) -> FunctionType:
    """A translated function whose machine code is named after its content.

    Numba numbers functions anew in each process; where a third one loads what two have compiled, two functions of the
    same name and number would be taken for the same.
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
    """Numba's state while our own functions compile: our typing rule, and full optimisation from the start.

    Without the garbage collector, too, which would take an eighth of the time and find next to nothing.
    """
    codegen: Any = cpu_target.target_context.codegen()  # pyright: ignore[reportAttributeAccessIssue]
    with global_compiler_lock:
        before, collecting = (codegen._opt_level, codegen._loopvect), gc.isenabled()
        gc.disable()
        # Without this, numba runs a weaker pass first, which moves loads into branches and so prevents vectorisation.
        codegen._opt_level, codegen._loopvect = 3, True
        # Numba takes a record for any other one that begins with the same fields. Functions are shared by units, and
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
