"""Deferred linking: machine code only for functions that Python calls.

Numba optimizes every function fully and makes machine code of it, and again in each function that calls it. Our
functions are small and called only by each other, up to one loop. A function without a Python wrapper is therefore left
unoptimized until it is part of that loop, which is optimized once, as a whole. That halves the work of LLVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba import types
from numba.core import event
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime.context import NRTContext

from velocirl.engine.compiler.arithmetic.vectors import widen

_WRAPPER = "_ZN7cpython"  # prefix of the names of Python wrappers


class _Ingredient(JITCodeLibrary):
    """Compiled function that is only linked into others, unless it has a Python wrapper."""

    @property
    def _called_from_python(self) -> bool:
        defined = [one.name for one in self._final_module.functions if not one.is_declaration]
        return not defined or any(name.startswith(_WRAPPER) for name in defined)  # none: loaded from the disk cache

    def add_ir_module(self, ir_module: Any) -> None:
        widen(ir_module)
        super().add_ir_module(ir_module)

    def _optimize_functions(self, ll_module: Any) -> None:
        """Optimize as numba does, but with the same passes for all functions, and none for mere declarations."""
        ll_module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def _optimize_final_module(self) -> None:
        if self._called_from_python:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        if self._called_from_python:
            super()._finalize_final_module()
        else:
            self._finalize_dynamic_globals()
            self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return super().get_pointer_to_function(name) if self._called_from_python else 0


@contextmanager
def linked_once(codegen: Any) -> Iterator[None]:
    """Optimize and make executable only what Python calls, in this context."""
    set_env = codegen.set_env

    def set_env_if_executable(name: str, env: Any) -> None:
        if codegen._engine.get_global_value_address(name):
            set_env(name, env)

    codegen._library_class, codegen.set_env = _Ingredient, set_env_if_executable
    try:
        yield
    finally:
        del codegen._library_class, codegen.set_env


@contextmanager
def arguments_uncounted() -> Iterator[None]:
    """Skip reference counting for this library's named tuples in this context: Python holds their arrays.

    A fleet has about twenty arrays. Counting each whenever the fleet is passed on took 1/20 of the compile time.
    """
    context: Any = NRTContext
    before = context.get_meminfos

    def get_meminfos(self: Any, builder: Any, kind: Any, value: Any) -> Any:
        named: Any = kind if isinstance(kind, types.BaseNamedTuple) else None
        ours = named is not None and named.instance_class.__module__.startswith("velocirl.")
        return [] if ours else before(self, builder, kind, value)

    context.get_meminfos = get_meminfos
    try:
        yield
    finally:
        context.get_meminfos = before


@contextmanager
def untimed() -> Iterator[None]:
    """Turn off numba's own timing in this context: every active function would record each call of LLVM."""
    before: Any = event.start_event, event.end_event
    event.start_event = event.end_event = lambda *_, **__: None
    try:
        yield
    finally:
        event.start_event, event.end_event = before
