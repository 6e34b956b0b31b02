"""Sums over the threads of a warp, by register shuffles instead of memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

WARP = 32  # threads
ALL, DOWN, WHOLE = 0xFFFFFFFF, 2, 0x1F  # all threads take part; shuffle mode "down"; width of the whole warp
WORD, HALF, DOUBLE = ir.IntType(64), ir.IntType(32), ir.DoubleType()


def keep_sum(rows, i, row):
    """Write the sum of the records of doubles of 32 neighbors, including i, into row `i//32`.

    All threads of a warp must call this, so the number of rows is a multiple of 32. In plain Python the calls come in
    order.
    """
    for name in row.dtype.names:
        rows[i // WARP][name] = row[name] if i % WARP == 0 else rows[i // WARP][name] + row[name]


def compiled_keep_sum(intrinsic: Any) -> Any:
    """Return `keep_sum` compiled with a compiler's `intrinsic`."""

    @intrinsic
    def keep_sum_compiled(typing_context: Any, rows: Any, i: Any, row: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            value, index, record = arguments
            doubles = builder.bitcast(record, DOUBLE.as_pointer())
            sums = [_sum(builder, builder.load(builder.gep(doubles, [WORD(k)]))) for k in range(row.size // 8)]
            held = context.make_array(rows)(context, builder, value)
            with builder.if_then(builder.icmp_unsigned("==", builder.and_(index, WORD(WARP - 1)), WORD(0))):
                start = builder.mul(builder.extract_value(held.strides, 0), builder.udiv(index, WORD(WARP)))
                place = builder.gep(builder.bitcast(held.data, ir.IntType(8).as_pointer()), [start])
                into = builder.bitcast(place, DOUBLE.as_pointer())
                for k, total in enumerate(sums):
                    builder.store(total, builder.gep(into, [WORD(k)]))
            return context.get_dummy_value()

        return types.void(rows, types.int64, row), generate

    return keep_sum_compiled


def _sum(builder: Any, number: Any) -> Any:
    """Return the sum of a number over the threads of a warp, valid in the first one."""
    for distance in (16, 8, 4, 2, 1):
        number = builder.fadd(number, _from(builder, number, distance))
    return number


def _from(builder: Any, number: Any, distance: int) -> Any:
    """Return the number of the thread `distance` further on, as two halves."""
    kind = ir.FunctionType(ir.LiteralStructType((HALF, ir.IntType(1))), [HALF] * 5)
    shuffle = cgutils.get_or_insert_function(builder.module, kind, "llvm.nvvm.shfl.sync.i32")
    bits = builder.bitcast(number, WORD)
    halves = []
    for part in (bits, builder.lshr(bits, WORD(32))):
        given = [HALF(ALL), HALF(DOWN), builder.trunc(part, HALF), HALF(distance), HALF(WHOLE)]
        halves.append(builder.zext(builder.extract_value(builder.call(shuffle, given), 0), WORD))
    return builder.bitcast(builder.or_(halves[0], builder.shl(halves[1], WORD(32))), DOUBLE)
