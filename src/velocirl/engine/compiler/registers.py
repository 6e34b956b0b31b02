"""Access to an environment's data in loops over environments, in forms that the compiler can vectorize.

A loop whose body reads a field inside a branch, or writes one, cannot be vectorized; one that works on a local copy in
registers can. Nor can a loop over rows whose width is known only at run time. Rows that are fields of a record have
their width in the type. Plain Python and CUDA use the functions as they are written here, the CPU their compiled forms.
"""

import operator
import os
from platform import machine
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

LARGEST = 256  # bytes of the largest record copied to registers; larger ones are used in place


def load(record):
    """Return an environment's record, for use until `store`."""
    return record


def store(record, held):
    """Write back a record from `load`."""


def row(array, i):
    """Return row i of an array with one row per environment."""
    return array[i]


def shaped(array, shape):  # noqa: ARG001
    """Return the same row with a shape known to the compiler; on the CPU the type has it already, see `as_rows`.

    Offsets in a row are then constants. Otherwise a GPU would compute all offsets before a loop, and hold them in its
    registers.
    """
    return array


def mailbox_read(mailbox, place):
    """Return the value that another thread last wrote into a slot of a mailbox."""
    return mailbox[place]


def mailbox_write(mailbox, place, value):
    """Write into a slot of a mailbox, visible to other threads together with all earlier writes."""
    mailbox[place] = value


def fetch_add(array, place, value):
    """Add to an integer atomically; returns its previous value."""
    before = array[place]
    array[place] = before + value
    return before


def exchange_if(array, place, expected, value):
    """Compare and exchange: write an integer atomically if it has the expected value; returns the previous value."""
    before = array[place]
    if before == expected:
        array[place] = value
    return before


def lowest_bit(word):
    """Return the index of the lowest set bit in a nonzero 64-bit word."""
    return (int(word) & -int(word)).bit_length() - 1


def fetch_ahead(array, place):
    """Prefetch an element that is needed soon."""


def relax():
    """Tell the processor that this thread only waits, so that its core's other hyperthread runs at full speed."""


def doze(microseconds):
    """Sleep for a number of microseconds; in effect at least about 60."""


def _copy(builder: Any, target: Any, source: Any, size: int) -> None:
    cgutils.raw_memcpy(builder, target, source, ir.Constant(ir.IntType(64), size), 1)


@intrinsic
def load_compiled(typing_context: Any, record: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        if record.size > LARGEST:
            return arguments[0]
        held = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(8), record.size))
        held.align = 16
        _copy(builder, held, arguments[0], record.size)
        return builder.bitcast(held, arguments[0].type)

    return record(record), generate


@intrinsic
def store_compiled(typing_context: Any, record: Any, held: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        if record.size <= LARGEST:
            _copy(builder, arguments[0], arguments[1], record.size)
        return context.get_dummy_value()

    return types.void(record, held), generate


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]])


@intrinsic
def mailbox_read_compiled(typing_context: Any, mailbox: Any, place: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, arguments), "seq_cst", 8)

    return types.int64(mailbox, types.int64), generate


@intrinsic
def mailbox_write_compiled(typing_context: Any, mailbox: Any, place: Any, value: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _place(context, builder, signature, arguments), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(mailbox, types.int64, types.int64), generate


@intrinsic
def fetch_add_compiled(typing_context: Any, array: Any, place: Any, value: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _place(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic
def exchange_if_compiled(typing_context: Any, array: Any, place: Any, expected: Any, value: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _place(context, builder, signature, arguments)
        outcome = builder.cmpxchg(address, arguments[2], arguments[3], "seq_cst", "seq_cst")
        return builder.extract_value(outcome, 0)

    return types.int64(array, types.int64, types.int64, types.int64), generate


@intrinsic
def lowest_bit_compiled(typing_context: Any, word: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def fetch_ahead_compiled(typing_context: Any, array: Any, place: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, address = ir.IntType(32), _place(context, builder, signature, arguments)
        pointer = builder.bitcast(address, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(prefetch, [pointer, *(ir.Constant(word, number) for number in (1, 3, 1))])  # to write, near, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic
def relax_compiled(typing_context: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        if machine() in ("x86_64", "AMD64"):
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, pause, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def doze_compiled(typing_context: Any, microseconds: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        if os.name == "posix":
            word = ir.IntType(32)
            function = ir.FunctionType(word, [word])
            usleep = cgutils.get_or_insert_function(builder.module, function, "usleep")
            builder.call(usleep, [builder.trunc(arguments[0], word)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def compiled_shaped(intrinsic: Any, populate_array: Any) -> Any:
    """Return `shaped`, compiled with these two functions of a compiler."""

    @intrinsic
    def shaped_compiled(typing_context: Any, array: Any, shape: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            if array.layout != "C":  # strided rows: elements of environments stored side by side
                return arguments[0]
            given = context.make_array(array)(context, builder, arguments[0])
            sizes = cgutils.unpack_tuple(builder, arguments[1], array.ndim)
            strides = [given.itemsize]
            for size in reversed(sizes[1:]):
                strides.insert(0, builder.mul(strides[0], size))
            row = context.make_array(array)(context, builder)
            populate_array(
                row, data=given.data, shape=sizes, strides=strides, itemsize=given.itemsize, meminfo=None, parent=None
            )
            return row._getvalue()

        return array(array, shape), generate

    return shaped_compiled


@intrinsic
def row_compiled(typing_context: Any, array: Any, i: Any) -> Any:
    """Return row i of an array from `as_rows`: `array[i].row`."""
    if not isinstance(array, types.Array):
        return None
    get = typing_context.resolve_function_type(operator.getitem, (array, i), {})
    record = get.return_type
    kind = typing_context.resolve_getattr(record, "row")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        place = context.cast(builder, arguments[1], i, get.args[1])
        found = context.get_function(operator.getitem, get)(builder, (arguments[0], place))
        return context.get_getattr(record, "row")(context, builder, record, found, "row")

    return kind(array, i), generate


@intrinsic
def shaped_compiled(typing_context: Any, array: Any, shape: Any) -> Any:  # noqa: ARG001
    """Return the same row."""
    return array(array, shape), lambda context, builder, signature, arguments: arguments[0]  # noqa: ARG005


def as_rows(array: NDArray[Any]) -> NDArray[Any]:
    """View an array as records with one field, the row, so that the row's shape is part of the type."""
    dtype = np.dtype([("row", array.dtype, array.shape[1:])])
    return array.view(np.uint8).reshape(len(array), -1).view(dtype)[:, 0]


COMPILED = {
    row: row_compiled,
    shaped: shaped_compiled,
    load: load_compiled,
    store: store_compiled,
    mailbox_read: mailbox_read_compiled,
    mailbox_write: mailbox_write_compiled,
    fetch_add: fetch_add_compiled,
    exchange_if: exchange_if_compiled,
    lowest_bit: lowest_bit_compiled,
    fetch_ahead: fetch_ahead_compiled,
    relax: relax_compiled,
    doze: doze_compiled,
}
