"""Columns: arguments of a scalar function for each row, from arrays that hold many rows.

`rows_at(columns, i, r, place)` returns the arguments for index i, in row r of its block. A plain array has a row for
each index; the classes below define other layouts. A row of numbers is an array. A row of records is a record, or an
array if the record's only field is NUMBERS.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

NUMBERS = "numbers"  # the only field of a record that represents a row of numbers, so that the type holds their count
MOST = 16  # maximum count of those


class Local(NamedTuple):
    """One row for each row of the block."""

    rows: NDArray[Any]


class Indexed(NamedTuple):
    """Indirection: the row of index i is rows[index[i]]."""

    rows: NDArray[Any]
    index: NDArray[Any]  # pyright: ignore[reportIncompatibleMethodOverride]


class Shared(NamedTuple):
    """One row for all indices."""

    rows: NDArray[Any]


class Summed(NamedTuple):
    """One row for all indices, to which each index adds and which none reads."""

    rows: NDArray[Any]


class Timed(NamedTuple):
    """Several rows for each index; `place` selects one."""

    rows: NDArray[Any]


class Grouped(NamedTuple):
    """One row for each group of `size` indices."""

    rows: NDArray[Any]
    size: int


class Ringed(NamedTuple):
    """Rows of a ring buffer, whose newest group begins at counts[0]."""

    rows: NDArray[Any]
    counts: NDArray[Any]


class Fresh(NamedTuple):
    """New record of zeros for each index, of the type of `rows`; sums in it stay in registers."""

    rows: NDArray[Any]


def with_width(column: Any) -> Any:
    """Return a column of few numbers per row with their count in its type; any other column unchanged."""
    array = column[0] if isinstance(column, tuple) else column
    if array.dtype.names or array.ndim != 2 or not 1 <= array.shape[1] <= MOST:
        return column
    array = array.view([(NUMBERS, array.dtype, array.shape[1:])])[:, 0]
    return type(column)(array, *column[1:]) if isinstance(column, tuple) else array


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of an array."""
    seen = array.view()
    seen.flags.writeable = False
    return seen


def rows_at(columns, i, r, place):
    """Return the arguments of a scalar function for index i, in row r of its block."""
    return tuple(_row(column, i, r, place) for column in columns)


def _row(column: Any, i: int, r: int, place: int) -> Any:
    row = _row_as_it_lies(column, i, r, place)
    return row[NUMBERS] if getattr(getattr(row, "dtype", None), "names", None) == (NUMBERS,) else row


def _row_as_it_lies(column: Any, i: int, r: int, place: int) -> Any:
    if isinstance(column, Local):
        return column.rows[r]
    if isinstance(column, Indexed):
        return column.rows[column.index[i]]
    if isinstance(column, Shared | Summed):
        return column.rows[0]
    if isinstance(column, Timed):
        return column.rows[i, place]
    if isinstance(column, Grouped):
        return column.rows[i // column.size]
    if isinstance(column, Ringed):
        return column.rows[column.counts[0] + i]
    if isinstance(column, Fresh):
        return np.zeros(1, column.rows.dtype)[0]
    return column[i]


def compiled_rows_at(intrinsic: Any, populate_array: Any) -> Any:
    """Return `rows_at` compiled with these two functions of a compiler."""

    @intrinsic
    def rows_at_compiled(typing_context: Any, columns: Any, i: Any, r: Any, place: Any) -> Any:  # noqa: ARG001
        kinds = [kind_of(column) for column in columns]
        result = types.Tuple([_row_type(array, word) for array, word in kinds])

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            whole, index, local, time = arguments
            made = []
            for k, (array, word) in enumerate(kinds):
                column = builder.extract_value(whole, k)
                places = [{Local: local, Shared: index.type(0), Summed: index.type(0)}.get(word, index)]
                if word in (Indexed, Ringed):
                    other, held = columns[k].types[1], builder.extract_value(column, 1)
                    found = _element(context, builder, other, held, word is Indexed and index)
                    places = [found if word is Indexed else builder.add(found, index)]
                elif word is Timed:
                    places.append(time)
                elif word is Grouped:
                    places = [builder.udiv(index, builder.extract_value(column, 1))]
                held = builder.extract_value(column, 0) if word is not None else column
                if word is Fresh:
                    made.append(_fresh(context, builder, array.dtype, populate_array))
                    continue
                made.append(_take(context, builder, array, held, places, populate_array))
            return context.make_tuple(builder, result, made)

        return result(columns, types.int64, types.int64, types.int64), generate

    return rows_at_compiled


def kind_of(column: Any) -> tuple[Any, Any]:
    """Return the type of a column's array and the class that defines how its row is found."""
    if isinstance(column, types.NamedTuple | types.NamedUniTuple):
        return column.types[0], column.instance_class
    return column, None


def _row_type(array: Any, word: Any) -> Any:
    if isinstance(array.dtype, types.Record) and only_numbers(array.dtype) is not None:
        return types.Array(only_numbers(array.dtype).dtype, 1, "C")
    left = array.ndim - (2 if word is Timed else 1)
    return array.dtype if left == 0 else types.Array(array.dtype, left, "C" if array.layout == "C" else "A")


def _element(context: Any, builder: Any, array: Any, value: Any, place: Any) -> Any:
    """Load an integer from an array, the first one unless an index is given."""
    held = context.make_array(array)(context, builder, value)
    found = builder.load(builder.gep(held.data, [place]) if place else held.data)
    return context.cast(builder, found, array.dtype, types.int64)


def only_numbers(record: Any) -> Any:
    """Return the type of the numbers of a record with no other fields, else None."""
    return record.typeof(NUMBERS) if list(record.fields) == [NUMBERS] else None


def _fresh(context: Any, builder: Any, record: Any, populate_array: Any) -> Any:
    """Allocate a record of zeros on the stack; returns it or its numbers."""
    size = ir.ArrayType(ir.IntType(8), record.size)
    room = cgutils.alloca_once(builder, size)
    room.align = 8
    builder.store(ir.Constant(size, None), room)
    return _record_at(context, builder, record, room, populate_array)


def _record_at(context: Any, builder: Any, record: Any, room: Any, populate_array: Any) -> Any:
    """Return the record at an address, or its numbers."""
    if (numbers := only_numbers(record)) is None:
        return builder.bitcast(room, context.get_value_type(record))
    row = context.make_array(types.Array(numbers.dtype, 1, "C"))(context, builder)
    width, itemsize = (ir.Constant(ir.IntType(64), one) for one in (numbers.nitems, numbers.dtype.bitwidth // 8))
    data = builder.bitcast(room, row.data.type)
    populate_array(row, data=data, shape=[width], strides=[itemsize], itemsize=itemsize, meminfo=None, parent=None)
    return row._getvalue()


def _take(context: Any, builder: Any, array: Any, value: Any, places: list[Any], populate_array: Any) -> Any:
    """Return the row at these leading indices: a number, a record, or an array of the remaining dimensions."""
    held = context.make_array(array)(context, builder, value)
    # By bytes, as strides are counted; computing addresses from integers would lose alias information.
    pointer = builder.bitcast(held.data, ir.IntType(8).as_pointer())
    for k, place in enumerate(places):
        pointer = builder.gep(pointer, [builder.mul(builder.extract_value(held.strides, k), place)])
    pointer = builder.bitcast(pointer, held.data.type)
    if array.ndim == len(places):
        if isinstance(array.dtype, types.Record):
            return _record_at(context, builder, array.dtype, pointer, populate_array)
        return context.unpack_value(builder, array.dtype, pointer)
    rest = range(len(places), array.ndim)
    kind = types.Array(array.dtype, len(rest), "C" if array.layout == "C" else "A")
    row = context.make_array(kind)(context, builder)
    populate_array(
        row,
        data=pointer,
        shape=[builder.extract_value(held.shape, k) for k in rest],
        strides=[builder.extract_value(held.strides, k) for k in rest],
        itemsize=held.itemsize,
        meminfo=None,
        parent=None,
    )
    return row._getvalue()


def keep_row(rows, i, row):
    """Write a record of numbers into a row."""
    rows[i] = row


def compiled_keep_row(intrinsic: Any) -> Any:
    """Return `keep_row` for a compiler, number by number; numba's own copies by bytes when alignment is unknown."""

    @intrinsic
    def keep_row_compiled(typing_context: Any, rows: Any, i: Any, row: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            held = context.make_array(rows)(context, builder, arguments[0])
            place = builder.gep(builder.bitcast(held.data, ir.IntType(8).as_pointer()),
                                [builder.mul(builder.extract_value(held.strides, 0), arguments[1])])  # fmt: skip
            numbers = [builder.bitcast(one, ir.FloatType().as_pointer()) for one in (place, arguments[2])]
            for k in range(row.size // 4):
                into, source = (builder.gep(one, [ir.Constant(ir.IntType(64), k)]) for one in numbers)
                builder.store(builder.load(source), into)
            return context.get_dummy_value()

        return types.void(rows, types.int64, row), generate

    return keep_row_compiled


COMPILED = {rows_at: compiled_rows_at(intrinsic, populate_array), keep_row: compiled_keep_row(intrinsic)}
