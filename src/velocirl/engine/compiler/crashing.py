"""Crash messages for compiled code: a signal handler in machine code, since Python cannot run after a crash."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core.registry import cpu_target

CRASHES = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL")
STDERR = 2
_SIZE = 256  # bytes, more than any system's `struct sigaction` has
_BEFORE = ctypes.create_string_buffer(_SIZE * 128)  # the previous action for each signal
_TEXT = ctypes.create_string_buffer(1024)


@contextmanager
def said_on_crash(text: str) -> Iterator[None]:
    """Write `text` to stderr if the process crashes in this context, then proceed with the previous signal action."""
    if os.name != "posix":
        yield
        return
    library, handler = ctypes.CDLL(None), _handler()
    _TEXT.value = text.encode()[: len(_TEXT) - 1]
    numbers = [int(getattr(signal, name)) for name in CRASHES]
    for number in numbers:
        library.sigaction(number, None, ctypes.byref(_BEFORE, number * _SIZE))
        library.signal(ctypes.c_int(number), ctypes.c_void_p(handler))
    try:
        yield
    finally:
        for number in numbers:
            library.sigaction(number, ctypes.byref(_BEFORE, number * _SIZE), None)


def _module() -> ir.Module:
    """Build `velocirl_crash(number)`: write the text, restore the signal's previous action and raise it again."""
    module, word, pointer, number = ir.Module(), ir.IntType(64), ir.IntType(8).as_pointer(), ir.IntType(32)

    def imported(name: str, result: Any, *arguments: Any) -> ir.Function:
        return ir.Function(module, ir.FunctionType(result, arguments), name)

    def at(place: Any) -> Any:
        return ir.Constant(word, ctypes.addressof(place)).inttoptr(pointer)

    crash = ir.Function(module, ir.FunctionType(ir.VoidType(), (number,)), "velocirl_crash")
    length, write = imported("strlen", word, pointer), imported("write", word, number, pointer, word)
    action, again = imported("sigaction", number, number, pointer, pointer), imported("raise", number, number)
    build = ir.IRBuilder(crash.append_basic_block())
    build.call(write, [number(STDERR), at(_TEXT), build.call(length, [at(_TEXT)])])
    place = build.mul(build.zext(crash.args[0], word), ir.Constant(word, _SIZE))
    build.call(action, [crash.args[0], build.gep(at(_BEFORE), [place]), pointer(None)])
    build.call(again, [crash.args[0]])
    build.ret_void()
    return module


@cache
def _handler() -> int:
    codegen: Any = cpu_target.target_context.codegen()  # pyright: ignore[reportAttributeAccessIssue]
    engine, machine = codegen._engine._ee, codegen._tm
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine.emit_object(llvm.parse_assembly(str(_module())))))
    engine.finalize_object()
    return engine.get_function_address("velocirl_crash")
