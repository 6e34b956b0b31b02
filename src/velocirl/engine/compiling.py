"""Numba as we need it for the CPU: inlined scalar functions, vectorised loops over them, and a cache by content."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numba
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from velocirl.engine import clock, columns, elementary, products, registers
from velocirl.engine.cache import open_cache
from velocirl.engine.fingerprint import fingerprint
from velocirl.engine.linking import linked_once
from velocirl.engine.precision import single_precision
from velocirl.engine.translating import Translator

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
# Learners may fuse a multiplication with an addition: a sample's gradient does not depend on its neighbours' anyway.
# Any further freedom would hide NaNs or undo the care of the elementary functions.
LEARNING: dict[str, Any] = {"fastmath": {"contract"}, **UNCOUNTED}


class DisjointArguments(Compiler):
    """Compiles a loop in the knowledge that its arrays do not overlap, which is what lets LLVM vectorise it."""

    def define_pipelines(self) -> Any:
        """Numba's own, with that knowledge."""
        self.state.flags.noalias = True
        return super().define_pipelines()


def cpu_translator(name: str, *, double: bool) -> Translator:
    """A translator to functions that numba inlines into the loops that call them."""
    substitutes = {**registers.COMPILED, **clock.COMPILED}
    compiled = numba.njit(**INLINED, **COUNTED)
    translator = Translator(name, double=double, compiled=compiled, substitutes=substitutes)
    translator.adopt(registers.row, numba.njit(inline="always")(registers.row_compiled))
    if not double:
        translator.substitute(math.sin, elementary.sin)
        translator.substitute(math.cos, elementary.cos)
    return translator


def learning_translator(name: str) -> Translator:
    """A translator for what networks, losses and optimisers are made of: single precision, fused multiply-add."""
    substitutes = {**registers.COMPILED, **clock.COMPILED, **columns.COMPILED, **products.COMPILED}
    compiled = numba.njit(**INLINED, **LEARNING)
    translator = Translator(name, double=False, compiled=compiled, substitutes=substitutes, manner="learning")
    translator.adopt(registers.row, numba.njit(inline="always")(registers.row_compiled))
    for function in ("sin", "cos", "exp", "expm1", "log", "tanh", "erf"):
        translator.substitute(getattr(math, function), getattr(elementary, function))
    return translator


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
    before, collecting = (codegen._opt_level, codegen._loopvect), gc.isenabled()
    gc.disable()
    # Without this, numba runs a weaker pass first, which moves loads into branches and so prevents vectorisation.
    codegen._opt_level, codegen._loopvect = 3, True
    try:
        with global_compiler_lock, linked_once(codegen):
            if double:
                yield
            else:
                with single_precision(cpu_target.typing_context, numba.types):
                    yield
    finally:
        codegen._opt_level, codegen._loopvect = before
        if collecting:
            gc.enable()
