"""Clock for compiled loops that measure their own time.

A call costs about 25 ns where the C library needs no system call. A stage of a few microseconds can therefore be timed
on every run, a shorter one on a sample of runs. Loops for CUDA must not read the clock.
"""

import os
import time
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def now():
    """Return nanoseconds since some moment in the past; monotonic."""
    return time.monotonic_ns()


@intrinsic
def now_compiled(typing_context: Any) -> Any:  # noqa: ARG001
    """Call `clock_gettime` by name, so that code from the disk cache finds it in any process; 0 on other systems."""

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
