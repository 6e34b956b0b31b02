"""The time, for compiled loops that count where theirs goes.

A look costs about 25 ns where the C library asks no kernel for it, so that a stage of a few microseconds can be timed
whenever it runs, and a shorter one now and then. Loops for CUDA must not look.
"""

import os
import time
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def now():
    """Nanoseconds since some moment in the past; never less than before."""
    return time.monotonic_ns()


@intrinsic
def now_compiled(typing_context: Any) -> Any:  # noqa: ARG001
    """`clock_gettime`, found by its name, so that code from the disk cache finds it in any process; else always 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        number, count = ir.IntType(32), ir.IntType(64)
        if os.name != "posix":
            return ir.Constant(count, 0)
        spec = cgutils.alloca_once(builder, ir.ArrayType(count, 2))  # seconds and nanoseconds
        read = ir.FunctionType(number, [number, count.as_pointer()])
        first = builder.gep(spec, [number(0), number(0)])
        second = builder.gep(spec, [number(0), number(1)])
        function = cgutils.get_or_insert_function(builder.module, read, "clock_gettime")
        builder.call(function, [number(time.CLOCK_MONOTONIC), first])
        return builder.add(builder.mul(builder.load(first), count(1_000_000_000)), builder.load(second))

    return types.int64(), generate


COMPILED = {now: now_compiled}
