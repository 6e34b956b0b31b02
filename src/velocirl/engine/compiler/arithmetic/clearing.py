"""Zeroing of a whole row: by memset on the CPU, by 16-byte stores on a GPU.

On a GPU, a store of one byte takes as long as one of 16. The rows of neighboring threads lie far apart, so their stores
are not coalesced.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

BYTE, WORD, WIDE = ir.IntType(8), ir.IntType(64), ir.VectorType(ir.IntType(32), 4)
NARROW, WIDEST = (1, 2, 4, 8), 16  # bytes that a thread can store at once


def clear(array):
    """Write zeros into all elements of an array: an observation, or a field of a state."""
    array[...] = 0


def _memory(context: Any, builder: Any, kind: Any, value: Any) -> tuple[Any, Any]:
    """Return the address and the size in bytes of an array."""
    array = context.make_array(kind)(context, builder, value)
    size = array.itemsize
    for length in cgutils.unpack_tuple(builder, array.shape, kind.ndim):
        size = builder.mul(size, length)
    return array.data, size


def _require_whole(array: Any) -> None:
    if getattr(array, "layout", "") != "C":
        raise TypingError(f"clear() takes an array whose elements lie one after the other in memory, not {array}")


@intrinsic
def clear_compiled(typing_context: Any, array: Any) -> Any:  # noqa: ARG001
    _require_whole(array)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        place, size = _memory(context, builder, array, arguments[0])
        cgutils.memset(builder, place, size, 0)
        return context.get_dummy_value()

    return types.void(array), generate


COMPILED = {clear: clear_compiled}


def clear_by_words(intrinsic: Any) -> Any:
    """Return `clear` for a GPU, compiled with `intrinsic`."""

    @intrinsic
    def clear_compiled(typing_context: Any, array: Any) -> Any:  # noqa: ARG001
        _require_whole(array)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            place, size = _memory(context, builder, array, arguments[0])
            _put_zeros(builder, builder.bitcast(place, BYTE.as_pointer()), size)
            return context.get_dummy_value()

        return types.void(array), generate

    return clear_compiled


def _put_zeros(builder: Any, start: Any, size: Any) -> None:
    """Store zeros by the widest stores that the alignment allows; narrow ones at the start and at the end."""
    first, done = builder.ptrtoint(start, WORD), cgutils.alloca_once_value(builder, WORD(0))

    def put(width: int) -> None:
        kind, place = ir.IntType(8 * width) if width < WIDEST else WIDE, builder.load(done)
        address = builder.bitcast(builder.gep(start, [place]), kind.as_pointer())
        builder.store(ir.Constant(kind, None), address, align=width)
        builder.store(builder.add(place, WORD(width)), done)

    def left() -> Any:
        return builder.sub(size, builder.load(done))

    def fits(width: int) -> Any:
        return builder.icmp_unsigned(">=", left(), WORD(width))

    for width in NARROW:
        address = builder.add(first, builder.load(done))
        odd = builder.icmp_unsigned("!=", builder.and_(address, WORD(width)), WORD(0))
        with builder.if_then(builder.and_(odd, fits(width))):
            put(width)
    with cgutils.for_range(builder, builder.udiv(left(), WORD(WIDEST))):
        put(WIDEST)
    for width in reversed(NARROW):
        with builder.if_then(fits(width)):
            put(width)
