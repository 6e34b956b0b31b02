"""Python functions as units, which compiled drivers call by address inside a loop to reach the outside world."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from velocirl.engine.compiler.entering import add_code
from velocirl.engine.compiler.frames import Frame

_SIGNATURE = ctypes.CFUNCTYPE(None, *(ctypes.c_int64,) * 3)


class PythonUnit:
    """Python `function(first, stop, place)` as a unit, which returns 0, or 1 if the function raised; see `raise_fault`.

    A call costs about 2 µs more than the function, and needs the GIL. A signal handler may raise before the function's
    first line. Nothing can catch that exception; only the unfinished call is known afterwards.
    """

    def __init__(self, function: Callable[[int, int, int], Any]) -> None:
        self._function = function
        self._called = _SIGNATURE(self._call)
        self._begun = np.zeros(1, np.int64)  # 1 while a call has not completed
        address = ctypes.cast(self._called, ctypes.c_void_p).value
        assert address is not None  # noqa: S101 - a function that was just made
        self._frame = Frame((address, int(self._begun.ctypes.data)))
        self._frame.enter(_calling_code())
        self.frame = self._frame.address
        self._fault: BaseException | None = None

    def raise_fault(self) -> None:
        """Raise the function's exception, outside of compiled code."""
        fault, self._fault = self._fault, None
        begun, self._begun[0] = self._begun[0], 0
        if begun:
            raise KeyboardInterrupt if fault is None else fault

    def _call(self, first: int, stop: int, place: int) -> None:
        try:
            self._function(first, stop, place)
            self._begun[0] = 0
        except BaseException as fault:  # noqa: BLE001 - told by `raise_fault`
            self._fault = fault


def calling_module() -> ir.Module:
    """Build `velocirl_call_python`, a unit as declared in `units`: result address, exception address, words.

    Its frame holds the addresses of the function and of the flag of an incomplete call, which is the result.
    """
    module, word, pointer = ir.Module(), ir.IntType(64), ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.IntType(32), (word.as_pointer(), pointer.as_pointer(), word, word, word, word))
    unit = ir.Function(module, kind, "velocirl_call_python")
    result, _, frame, *words = unit.args
    build = ir.IRBuilder(unit.append_basic_block())
    arguments = build.inttoptr(frame, word.as_pointer())
    address, begun = (build.load(build.gep(arguments, [ir.Constant(word, k)])) for k in range(2))
    begun = build.inttoptr(begun, word.as_pointer())
    build.store(word(1), begun)
    build.call(build.inttoptr(address, ir.FunctionType(ir.VoidType(), (word,) * 3).as_pointer()), words)
    build.store(build.load(begun), result)
    build.ret(ir.IntType(32)(0))
    return module


@cache
def _calling_code() -> int:
    return add_code(calling_module(), "velocirl_call_python")
