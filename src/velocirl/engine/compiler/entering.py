"""Trampoline from Python to a unit: a built-in function whose machine code is generated here.

A ctypes call takes 1.2 µs, where a whole step of 64 environments takes 7; this takes a tenth of that. The GIL is
released while the unit runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import serialize
from numba.core.registry import cpu_target

FASTCALL = 0x80  # METH_FASTCALL: arguments come as an array of objects


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Exception(ctypes.Structure):
    """Numba's report of an exception: address and length of its pickle, made by the compiler."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_int32))


def raise_what_was_told(address: int) -> None:
    """Raise the exception that a unit reported."""
    found = _Exception.from_address(address)
    data = ctypes.string_at(found.data or 0, found.size)
    kind, arguments, _ = serialize._numba_unpickle(found.data, data, data)
    raise kind(*(arguments or ()))


def entry_module() -> ir.Module:
    """Build `velocirl_enter(self, arguments, count)` for four integers: frame, first, stop and place.

    If the unit's status is above 0, it has raised an exception; `self` is then called with the exception's address.
    """
    module, word, pointer, status = ir.Module(), ir.IntType(64), ir.IntType(8).as_pointer(), ir.IntType(32)

    def imported(name: str, result: Any, *arguments: Any, variadic: bool = False) -> ir.Function:
        return ir.Function(module, ir.FunctionType(result, arguments, variadic), name)

    enter = ir.Function(module, ir.FunctionType(pointer, (pointer, pointer.as_pointer(), word)), "velocirl_enter")
    whole_number = imported("PyLong_AsLongLong", word, pointer)
    number_object = imported("PyLong_FromLongLong", pointer, word)
    error = imported("PyErr_Occurred", pointer)
    release = imported("PyEval_SaveThread", pointer)
    acquire = imported("PyEval_RestoreThread", ir.VoidType(), pointer)
    call = imported("PyObject_CallFunction", pointer, pointer, pointer, variadic=True)
    text: Any = ir.GlobalVariable(module, ir.ArrayType(ir.IntType(8), 2), "one_address")
    text.linkage, text.global_constant = "internal", True
    text.initializer = ir.Constant(text.value_type, bytearray(b"K\0"))

    build = ir.IRBuilder(enter.append_basic_block())
    result, exception = build.alloca(word), build.alloca(pointer)
    places = [build.gep(enter.args[1], [ir.Constant(word, k)]) for k in range(4)]
    words = [build.call(whole_number, [build.load(place)]) for place in places]
    with build.if_then(build.icmp_unsigned("!=", build.call(error, []), pointer(None)), likely=False):
        build.ret(pointer(None))
    unit = ir.FunctionType(status, (word.as_pointer(), pointer.as_pointer(), word, word, word, word)).as_pointer()
    frame = build.inttoptr(words[0], unit.as_pointer())
    code = build.load(build.gep(frame, [ir.Constant(word, -1)]))  # see `frames`
    thread = build.call(release, [])
    outcome = build.call(code, [result, exception, *words])
    build.call(acquire, [thread])
    with build.if_then(build.icmp_signed(">", outcome, status(0)), likely=False):
        build.call(call, [enter.args[0], build.bitcast(text, pointer), build.load(exception)])
        build.ret(pointer(None))
    build.ret(build.call(number_object, [build.load(result)]))
    return module


def add_code(module: ir.Module, name: str) -> int:
    """Compile a module of LLVM code, and return the address of one of its functions."""
    codegen: Any = cpu_target.target_context.codegen()  # pyright: ignore[reportAttributeAccessIssue]
    engine, machine = codegen._engine._ee, codegen._tm
    code = machine.emit_object(llvm.parse_assembly(str(module)))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine.get_function_address(name)


@cache
def unit_entry() -> Callable[[int, int, int, int], int]:
    """Return `enter(frame, first, stop, place)`, which calls the unit of a frame, given by address."""
    _METHOD.code = add_code(entry_module(), "velocirl_enter")
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return make(ctypes.addressof(_METHOD), raise_what_was_told, None)


_METHOD = _Method(b"enter", None, FASTCALL, None)  # must exist as long as the function
