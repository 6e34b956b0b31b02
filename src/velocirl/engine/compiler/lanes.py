"""Lanes: rows processed side by side by a scalar function, so that the compiler generates vector instructions.

The rows of a strip are first transposed to columns (each number of all rows contiguous). The function runs on those,
and its results are transposed back. Rows may be anywhere in memory; the function is the same. Every record that it
receives is a copy in registers: a loop that reads fields inside branches, or writes them, could not be vectorized. Sums
are formed in each lane and added up at the end, in the order of the lanes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from velocirl.engine.compiler.caching.fingerprint import names_reached, names_written
from velocirl.engine.compiler.columns import (
    NUMBERS,
    Shared,
    Summed,
    Timed,
    kind_of,
    only_numbers,
    read_only,
    rows_at,
    with_width,
)

LANES = 32  # rows of a strip: a whole number of vectors on any processor
LINE = 64  # bytes: alignment of the lanes of each number
BYTE, WORD = ir.IntType(8), ir.IntType(64)


def lane_loop(function: Callable[..., Any], head: Any = None) -> Callable[..., Any]:
    """Make `run(columns, first, stop, place)`: a scalar function over a range of rows, with columns from `in_lanes`.

    A `head` is passed as the function's first argument.
    """

    def call_with_head(*rows):
        function(head, *rows)

    call = function if head is None else call_with_head

    def run(columns, first, stop, place):
        lanes = make_lanes(columns)
        for begin in range(first, stop, LANES):
            end = min(begin + LANES, stop)
            for i in range(begin, end):
                turn_in(columns, lanes, rows_at(columns, i, i - first, place), i - begin)
            for lane in range(end - begin):
                rows = enter_lane(columns, lanes, lane)
                call(*rows)
                leave_lane(columns, lanes, rows, lane)
            for i in range(begin, end):
                turn_back(columns, lanes, rows_at(columns, i, i - first, place), i - begin)
        add_up(columns, lanes)
        return 0

    return run


def in_lanes(function: Callable[..., Any], columns: Sequence[Any], fixed: Sequence[str] = ()) -> tuple[Any, ...] | None:
    """Return a function's columns for `lane_loop`, all of records, or None if rows have too many numbers.

    Records with names keep only the fields that the function names. Read-only columns are not written back, nor are
    records of which it writes no field. Fields of several numbers count as written, except the `fixed` ones.
    """
    written = names_written(function)
    named = names_reached(function) | written
    made = []
    for column in map(with_width, columns):
        array = column[0] if isinstance(column, tuple) else column
        if array.dtype.names and array.dtype.names != (NUMBERS,) and not isinstance(column, Summed):
            array = array[[name for name in array.dtype.names if name in named]]
            several = {name for name in array.dtype.names if array.dtype[name].shape}
            if not written & set(array.dtype.names) and several <= set(fixed):
                array = read_only(array)
        if not array.dtype.names or array.ndim > (2 if isinstance(column, Timed) else 1):
            return None
        made.append(type(column)(array, *column[1:]) if isinstance(column, tuple) else array)
    return tuple(made)


class _Number(NamedTuple):
    """One number of a record."""

    kind: Any
    offset: int  # in the record, in bytes,
    lanes: int  # and of its first lane in the buffer of all lanes

    @property
    def size(self) -> int:
        return self.kind.bitwidth // 8


class _Column:
    """Properties of a column of records for code generation."""

    def __init__(self, kind: Any) -> None:
        self.array, self.word = kind_of(kind)
        self.record = self.array.dtype
        self.turned = self.word not in (Shared, Summed)
        self.numbers: list[_Number] = []
        self.size = 0  # of its lanes' buffer, in bytes
        for name, field in self.record.fields.items():
            kind = self.record.typeof(name)
            inner, count = (kind.dtype, kind.nitems) if isinstance(kind, types.NestedArray) else (kind, 1)
            size = inner.bitwidth // 8
            self.stride = -(-LANES * size // LINE) * LINE  # from a number to the next, if all have the same type
            for k in range(count):
                self.numbers.append(_Number(inner, field.offset + k * size, self.size))
                self.size += self.stride
        only = only_numbers(self.record)
        self.row = self.record if only is None else types.Array(only.dtype, 1, "A")  # the function's view
        self.copied = only is None  # whether the function receives a record, copied for each lane


class _Code:
    """Code generator for moving numbers."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context, self.builder = context, builder

    def at(self, pointer: Any, offset: int, lane: Any = None, size: int = 0) -> Any:
        """Return the address `offset` bytes after a pointer, plus `lane` numbers of `size` bytes."""
        place = self.builder.gep(self.builder.bitcast(pointer, BYTE.as_pointer()), [WORD(offset)])
        return place if lane is None else self.builder.gep(place, [self.builder.mul(lane, WORD(size))])

    def load(self, kind: Any, place: Any) -> Any:
        """Load the number at an address."""
        found = self.builder.load(self.builder.bitcast(place, self.context.get_data_type(kind).as_pointer()))
        found.align = kind.bitwidth // 8
        return found

    def store(self, kind: Any, number: Any, place: Any) -> None:
        """Store a number at an address."""
        pointer = self.builder.bitcast(place, self.context.get_data_type(kind).as_pointer())
        self.builder.store(number, pointer).align = kind.bitwidth // 8

    def move(self, one: _Number, lanes: Any, lane: Any, record: Any, *, back: bool = False) -> None:
        """Copy a number from a record to its lane, or back."""
        places = self.at(lanes, one.lanes, lane, one.size), self.at(record, one.offset)
        into, source = reversed(places) if back else places
        self.store(one.kind, self.load(one.kind, source), into)

    def record(self, column: _Column) -> Any:
        """Allocate a record, which the compiler keeps in registers."""
        room = cgutils.alloca_once(self.builder, ir.ArrayType(BYTE, max(column.record.size, 1)))
        room.align = 16
        return self.builder.bitcast(room, self.context.get_value_type(column.record))

    def first_row(self, column: _Column, value: Any) -> Any:
        """Return the address of a column's first row."""
        return self.context.make_array(column.array)(self.context, self.builder, self.member(value, 0)).data

    def row(self, column: _Column, row: Any) -> Any:
        """Return the address of a row, given as a record or as the array of its numbers."""
        if column.copied:
            return row
        return self.context.make_array(types.Array(column.row.dtype, 1, "C"))(self.context, self.builder, row).data

    def member(self, value: Any, k: int) -> Any:
        """Return a member of a tuple."""
        return self.builder.extract_value(value, k)

    def one_by_one(self) -> None:
        """Prevent vectorization of a loop; for moves to and from scattered addresses it costs more than it saves."""
        self.builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)


def _generated(result: Callable[[list[_Column]], Any]) -> Callable[[Callable[..., Any]], Any]:
    """Make the intrinsic of (columns, ...) whose code the decorated function of (code, columns, ...) generates."""

    def decorate(function: Callable[..., Any]) -> Any:
        def made(typing_context: Any, columns: Any, *more: Any) -> Any:  # noqa: ARG001
            known = [_Column(one) for one in columns]

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                members = function(_Code(context, builder), known, *arguments)
                if members is None:
                    return context.get_dummy_value()
                return context.make_tuple(builder, signature.return_type, members)

            return result(known)(columns, *more), generate

        own = inspect.signature(function)
        parameters = [one.replace(annotation=one.empty) for name, one in own.parameters.items() if name != "columns"]
        made.__signature__ = own.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
        return intrinsic(made)

    return decorate


@_generated(lambda columns: types.Tuple([types.voidptr if one.word is not Shared else one.record for one in columns]))
def make_lanes(code: _Code, columns: list[_Column], given: Any) -> list[Any]:
    """Allocate the lanes of each column; a row shared by all is stored once."""
    made = []
    for k, column in enumerate(columns):
        if column.word is Shared:
            held, source = code.record(column), code.first_row(column, code.member(given, k))
            for one in column.numbers:
                code.store(one.kind, code.load(one.kind, code.at(source, one.offset)), code.at(held, one.offset))
            made.append(held)
            continue
        room = cgutils.alloca_once(code.builder, ir.ArrayType(BYTE, max(column.size, 1)))
        room.align = LINE
        made.append(code.builder.bitcast(room, BYTE.as_pointer()))
        if column.word is Summed:
            cgutils.memset(code.builder, made[-1], WORD(column.size), 0)
    return made


@_generated(lambda _: types.void)
def turn_in(code: _Code, columns: list[_Column], given: Any, lanes: Any, rows: Any, lane: Any) -> None:  # noqa: ARG001
    """Write the numbers of rows into a lane."""
    code.one_by_one()
    for k, column in enumerate(columns):
        for one in column.numbers if column.turned else ():
            code.move(one, code.member(lanes, k), lane, code.row(column, code.member(rows, k)))


@_generated(lambda columns: types.Tuple([one.row for one in columns]))
def enter_lane(code: _Code, columns: list[_Column], given: Any, lanes: Any, lane: Any) -> list[Any]:  # noqa: ARG001
    """Return the rows of a lane, as the function receives them."""
    made = []
    for k, column in enumerate(columns):
        room = code.member(lanes, k)
        if column.word is Shared:
            made.append(room)
        elif column.copied:
            made.append(code.record(column))
            for one in column.numbers:
                code.move(one, room, lane, made[-1], back=True)
        else:
            row, size = code.context.make_array(column.row)(code.context, code.builder), column.numbers[0].size
            data = code.builder.bitcast(code.at(room, 0, lane, size), row.data.type)
            shape, strides = [WORD(len(column.numbers))], [WORD(column.stride)]
            populate_array(row, data=data, shape=shape, strides=strides, itemsize=WORD(size), meminfo=None, parent=None)
            made.append(row._getvalue())
    return made


@_generated(lambda _: types.void)
def leave_lane(code: _Code, columns: list[_Column], given: Any, lanes: Any, rows: Any, lane: Any) -> None:  # noqa: ARG001
    """Write the function's copies back into their lane."""
    for k, column in enumerate(columns):
        if column.copied and column.array.mutable and column.word is not Shared:
            for one in column.numbers:
                code.move(one, code.member(lanes, k), lane, code.member(rows, k))


@_generated(lambda _: types.void)
def turn_back(code: _Code, columns: list[_Column], given: Any, lanes: Any, rows: Any, lane: Any) -> None:  # noqa: ARG001
    """Write a lane back into its rows."""
    code.one_by_one()
    for k, column in enumerate(columns):
        for one in column.numbers if column.turned and column.array.mutable else ():
            code.move(one, code.member(lanes, k), lane, code.row(column, code.member(rows, k)), back=True)


@_generated(lambda _: types.void)
def add_up(code: _Code, columns: list[_Column], given: Any, lanes: Any) -> None:
    """Add the sums of all lanes to the column's sums."""
    builder = code.builder
    for k, column in enumerate(columns):
        if column.word is not Summed:
            continue
        into, room = code.first_row(column, code.member(given, k)), code.member(lanes, k)
        for one in column.numbers:
            total = cgutils.alloca_once_value(builder, code.load(one.kind, code.at(into, one.offset)))
            with cgutils.for_range(builder, WORD(LANES), intp=WORD) as loop:
                more = code.load(one.kind, code.at(room, one.lanes, loop.index, one.size))
                builder.store(builder.fadd(builder.load(total), more), total)
            code.store(one.kind, builder.load(total), code.at(into, one.offset))
