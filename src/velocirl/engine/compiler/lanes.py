"""Lanes: rows taken through a scalar function side by side, so that the compiler makes vector instructions of it.

The rows of a strip are first turned into columns (each number of all rows next to each other), the function runs over
those, and what it wrote is turned back. Rows may lie anywhere; the function is the same. Every record that it sees is a
copy in registers: a loop that reads fields inside branches, or writes them, could not be vectorised. Sums are formed in
each lane and added up at the end, in the order of the lanes.
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
LINE = 64  # bytes, at a multiple of which the lanes of a number begin
BYTE, WORD = ir.IntType(8), ir.IntType(64)


def lane_loop(function: Callable[..., Any], head: Any = None) -> Callable[..., Any]:
    """`run(columns, first, stop, place)`: a scalar function of rows, for all rows of a range; of columns `in_lanes`.

    A function that has a `head` takes it first.
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
    """The columns of a function as `lane_loop` takes them, all of records; nothing where rows have too many numbers.

    Of records with names, the function sees the fields that it names. What is read-only is not written back; so are
    records of which it writes no field. Fields of several numbers count as written, other than the `fixed` ones.
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
    lanes: int  # and of its first lane in the room for all of them

    @property
    def size(self) -> int:
        return self.kind.bitwidth // 8


class _Column:
    """What is known of a column of records when code is generated for it."""

    def __init__(self, kind: Any) -> None:
        self.array, self.word = kind_of(kind)
        self.record = self.array.dtype
        self.turned = self.word not in (Shared, Summed)
        self.numbers: list[_Number] = []
        self.size = 0  # of the room for its lanes, in bytes
        for name, field in self.record.fields.items():
            kind = self.record.typeof(name)
            inner, count = (kind.dtype, kind.nitems) if isinstance(kind, types.NestedArray) else (kind, 1)
            size = inner.bitwidth // 8
            self.stride = -(-LANES * size // LINE) * LINE  # from a number to the next, where all are of one kind
            for k in range(count):
                self.numbers.append(_Number(inner, field.offset + k * size, self.size))
                self.size += self.stride
        only = only_numbers(self.record)
        self.row = self.record if only is None else types.Array(only.dtype, 1, "A")  # what the function sees
        self.copied = only is None  # whether it sees a record, of which each lane makes a copy


class _Code:
    """Generates the code that moves numbers."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context, self.builder = context, builder

    def at(self, pointer: Any, offset: int, lane: Any = None, size: int = 0) -> Any:
        """So many bytes on, and so many numbers of a size."""
        place = self.builder.gep(self.builder.bitcast(pointer, BYTE.as_pointer()), [WORD(offset)])
        return place if lane is None else self.builder.gep(place, [self.builder.mul(lane, WORD(size))])

    def load(self, kind: Any, place: Any) -> Any:
        """The number that lies there."""
        found = self.builder.load(self.builder.bitcast(place, self.context.get_data_type(kind).as_pointer()))
        found.align = kind.bitwidth // 8
        return found

    def store(self, kind: Any, number: Any, place: Any) -> None:
        """Let a number lie there."""
        pointer = self.builder.bitcast(place, self.context.get_data_type(kind).as_pointer())
        self.builder.store(number, pointer).align = kind.bitwidth // 8

    def move(self, one: _Number, lanes: Any, lane: Any, record: Any, *, back: bool = False) -> None:
        """A number from a record to its lane, or back."""
        places = self.at(lanes, one.lanes, lane, one.size), self.at(record, one.offset)
        into, source = reversed(places) if back else places
        self.store(one.kind, self.load(one.kind, source), into)

    def record(self, column: _Column) -> Any:
        """Room for a record, which the compiler will keep in registers."""
        room = cgutils.alloca_once(self.builder, ir.ArrayType(BYTE, max(column.record.size, 1)))
        room.align = 16
        return self.builder.bitcast(room, self.context.get_value_type(column.record))

    def first_row(self, column: _Column, value: Any) -> Any:
        """Where the rows of a column begin."""
        return self.context.make_array(column.array)(self.context, self.builder, self.member(value, 0)).data

    def row(self, column: _Column, row: Any) -> Any:
        """Where a row lies, of which only the array of its numbers may be known."""
        if column.copied:
            return row
        return self.context.make_array(types.Array(column.row.dtype, 1, "C"))(self.context, self.builder, row).data

    def member(self, value: Any, k: int) -> Any:
        """A member of a tuple."""
        return self.builder.extract_value(value, k)

    def one_by_one(self) -> None:
        """Keep a loop from being vectorised, which for moves to and from scattered places costs more than it saves."""
        self.builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)


def _generated(result: Callable[[list[_Column]], Any]) -> Callable[[Callable[..., Any]], Any]:
    """The intrinsic of (columns, ...) whose code a function of (code, columns, ...) generates."""

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
    """Room for the lanes of each column; a row that is for all is there once."""
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
    """The rows of a lane, as the function sees them."""
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
    """Write what the function has made of its copies into their lane."""
    for k, column in enumerate(columns):
        if column.copied and column.array.mutable and column.word is not Shared:
            for one in column.numbers:
                code.move(one, code.member(lanes, k), lane, code.member(rows, k))


@_generated(lambda _: types.void)
def turn_back(code: _Code, columns: list[_Column], given: Any, lanes: Any, rows: Any, lane: Any) -> None:  # noqa: ARG001
    """Write what stands in a lane back into its rows."""
    code.one_by_one()
    for k, column in enumerate(columns):
        for one in column.numbers if column.turned and column.array.mutable else ():
            code.move(one, code.member(lanes, k), lane, code.row(column, code.member(rows, k)), back=True)


@_generated(lambda _: types.void)
def add_up(code: _Code, columns: list[_Column], given: Any, lanes: Any) -> None:
    """Add the sums of all lanes to those of the column."""
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
