"""Interpreter access of compiled functions: printing of numbers and text; everything else is a compile error.

Numba boxes printed values with an object that it makes for each function. Units, which are called by address, lack this
object. Numba's code then returns early without releasing the GIL, which is lost for good. Numbers and text are printed
without such an object; anything that needs one has no compiled form here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.cpu import CPUContext
from numba.core.errors import NumbaError
from numba.extending import lower_builtin

NEEDS_INTERPRETER = "this needs the interpreter"  # by which `diagnosis` recognizes the error


def _print_item(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Print one number or text; numba's caller holds the GIL."""
    (kind,), (value,) = signature.args, arguments
    python = context.get_python_api(builder)
    if context.enable_nrt:
        context.nrt.incref(builder, kind, value)
    boxed = python.from_native_value(kind, value, None)
    with cgutils.if_likely(builder, cgutils.is_not_null(builder, boxed)):
        python.print_object(boxed)
        python.decref(boxed)
    return context.get_dummy_value()


@lower_builtin("print_item", types.StringLiteral)
def _print_literal(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
    """Print a literal text without running Python code.

    Numba would run Python for it, where the GIL may change hands: two threads would write into each other's lines.
    """
    python = context.get_python_api(builder)
    text = context.insert_const_string(builder.module, signature.args[0].literal_value)
    python.sys_write_stdout(context.insert_const_string(builder.module, "%s"), text)
    return context.get_dummy_value()


for _kind in (*types.number_domain, types.boolean, types.unicode_type):
    lower_builtin("print_item", _kind)(_print_item)


@contextmanager
def no_interpreter() -> Iterator[None]:
    """Raise at the responsible line, in this context, if compiled code needs more of the interpreter."""
    context: Any = CPUContext
    before = context.get_env_manager

    def refuse(self: Any, builder: Any, return_pyobject: bool = False) -> Any:
        if return_pyobject:  # between compiled code and Python, outside of any function
            return before(self, builder, return_pyobject)
        raise NumbaError(NEEDS_INTERPRETER)  # to which numba adds the line

    context.get_env_manager = refuse
    try:
        yield
    finally:
        context.get_env_manager = before
