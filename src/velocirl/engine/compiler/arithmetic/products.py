"""Products of matrices that fit into one core's caches, near the core's peak multiplication rate.

Networks in reinforcement learning are small: a block of rows meets matrices of 64 x 64, or 64 x 3. A general BLAS
spends much of such a product on preparing it. Here the right-hand matrix is stored in panels of 16 columns, prepared
once per optimizer step. The inner loop keeps the results of up to 6 rows by 16 columns in registers and only loads,
multiplies and adds. Measured on one AVX2 core: 80 to 90 GFLOP/s for 96 x 64 x 64, OpenBLAS 48 to 60.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

PANEL = 16  # columns computed together: two registers of AVX2, one of AVX-512
HALF = 8  # the last panel of a matrix may be half as wide
MANY, SOME = 6, 4  # rows computed together: twelve results of AVX2's sixteen registers, or fewer at the end
UNROLL = 4  # a single row has too few results to keep the multipliers busy: four partial sums of each


def padded(columns: int) -> int:
    """Return the number of columns that a product computes: `columns` rounded up to whole half panels."""
    return -(-columns // HALF) * HALF


def multiply(left, left_start, left_row, left_step, right, right_start, right_panel, right_step,
             begin, begin_start, begin_row, result, result_start, result_row, rows, columns, depth):  # fmt: skip
    """Compute result[i, j] = begin[i, j] + sum over p of left(i, p) * right(p, j), for i < rows and j < columns.

    left(i, p) is left[left_start + i * left_row + p * left_step], so that a transposed matrix only has other steps. The
    columns of `right` are stored in panels, `right_panel` apart; in each, row p begins at p * right_step. `columns` is
    a multiple of eight. `begin` may be `result` itself (to accumulate) or one row used for all (begin_row 0).
    """
    for panel in range(0, columns, PANEL):
        tile = right_start + (panel // PANEL) * right_panel
        wide = columns - panel >= PANEL
        i = 0
        while i < rows:
            first = left_start + i * left_row
            start = begin_start + i * begin_row + panel
            place = result_start + i * result_row + panel
            if rows - i >= MANY:
                if wide:
                    tile_6x16(left, first, left_row, left_step, right, tile, right_step, begin, start, begin_row,
                              result, place, result_row, depth)  # fmt: skip
                else:
                    tile_6x8(left, first, left_row, left_step, right, tile, right_step, begin, start, begin_row,
                             result, place, result_row, depth)  # fmt: skip
                i += MANY
            elif rows - i >= SOME:
                if wide:
                    tile_4x16(left, first, left_row, left_step, right, tile, right_step, begin, start, begin_row,
                              result, place, result_row, depth)  # fmt: skip
                else:
                    tile_4x8(left, first, left_row, left_step, right, tile, right_step, begin, start, begin_row,
                             result, place, result_row, depth)  # fmt: skip
                i += SOME
            else:
                if wide:
                    tile_1x16(left, first, left_row, left_step, right, tile, right_step, begin, start, begin_row,
                              result, place, result_row, depth)  # fmt: skip
                else:
                    tile_1x8(left, first, left_row, left_step, right, tile, right_step, begin, start, begin_row,
                             result, place, result_row, depth)  # fmt: skip
                i += 1


def _tile(rows: int, columns: int) -> Callable[..., None]:
    """Return a tile of a product in plain Python, equivalent to the compiled tile of the same size."""

    def tile(left, left_start, left_row, left_step, right, right_start, right_step, begin, begin_start, begin_row,
             result, result_start, result_row, depth):  # fmt: skip
        for i in range(rows):
            for j in range(columns):
                total = begin[begin_start + i * begin_row + j]
                for p in range(depth):
                    total += left[left_start + i * left_row + p * left_step] * right[right_start + p * right_step + j]
                result[result_start + i * result_row + j] = total

    return tile


def _compiled_tile(rows: int, columns: int) -> Any:
    unroll = UNROLL if rows == 1 else 1

    @intrinsic
    def tile(typing_context, left, left_start, left_row, left_step, right, right_start, right_step, begin,  # noqa: ARG001
             begin_start, begin_row, result, result_start, result_row, depth):  # fmt: skip  # noqa: ARG001
        whole = types.int64
        signature = types.void(
            left, whole, whole, whole, right, whole, whole, begin, whole, whole, result, whole, whole, whole
        )

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def matrix(number: int) -> Any:
                array = context.make_array(signature.args[number])(context, builder, arguments[number])
                return builder.gep(array.data, [arguments[number + 1]])

            emit = _Emitter(builder, rows, columns)
            left_rows = emit.rows(matrix(0), arguments[2])
            sums = [emit.load(pointer) for pointer in emit.rows(matrix(7), arguments[9])]
            targets = emit.rows(matrix(10), arguments[12])
            right, left_step, right_step, depth = matrix(4), arguments[3], arguments[6], arguments[13]
            done = emit.whole(0)
            if unroll > 1:
                blocks = builder.and_(depth, emit.whole(-unroll))
                partial = [sums, *([emit.zero] * rows for _ in range(unroll - 1))]
                flat = [one for group in partial for one in group]

                def several(p: Any, held: list[Any]) -> list[Any]:
                    new = []
                    for k in range(unroll):
                        here = builder.add(p, emit.whole(k))
                        new += emit.add_products(left_rows, left_step, right, right_step, here, held[k * rows :][:rows])
                    return new

                flat = emit.loop(done, blocks, unroll, flat, several)
                sums = flat[:rows]
                for k in range(1, unroll):
                    sums = [emit.add(one, more) for one, more in zip(sums, flat[k * rows :][:rows], strict=True)]
                done = blocks
            sums = emit.loop(
                done, depth, 1, sums,
                lambda p, held: emit.add_products(left_rows, left_step, right, right_step, p, held),
            )  # fmt: skip
            for value, pointer in zip(sums, targets, strict=True):
                emit.store(value, pointer)
            return context.get_dummy_value()

        return signature, generate

    return tile


class _Emitter:
    """Emitter of a tile's few instructions, on vectors as wide as its rows."""

    def __init__(self, builder: Any, rows: int, columns: int) -> None:
        self._builder = builder
        self._rows = rows
        self._vector = ir.VectorType(ir.FloatType(), columns)
        self._everywhere = ir.Constant(ir.VectorType(ir.IntType(32), columns), [0] * columns)
        self.zero = ir.Constant(self._vector, [0.0] * columns)

    def whole(self, number: int) -> Any:
        return ir.Constant(ir.IntType(64), number)

    def rows(self, matrix: Any, row: Any) -> list[Any]:
        """Return pointers to the first elements of the tile's rows."""
        return [self._builder.gep(matrix, [self._builder.mul(row, self.whole(i))]) for i in range(self._rows)]

    def load(self, pointer: Any) -> Any:
        loaded = self._builder.load(self._builder.bitcast(pointer, self._vector.as_pointer()))
        loaded.align = 4
        return loaded

    def store(self, value: Any, pointer: Any) -> None:
        self._builder.store(value, self._builder.bitcast(pointer, self._vector.as_pointer())).align = 4

    def add(self, first: Any, second: Any) -> Any:
        return self._builder.fadd(first, second, flags=("contract",))

    def add_products(self, left_rows: list[Any], left_step: Any, right: Any, right_step: Any, p: Any, sums: list[Any]
                     ) -> list[Any]:  # fmt: skip
        """Return each row's sum plus left(row, p) times row p of the panel; "contract" makes it one instruction."""
        builder = self._builder
        panel = self.load(builder.gep(right, [builder.mul(p, right_step)]))
        offset = builder.mul(p, left_step)
        new = []
        for pointer, total in zip(left_rows, sums, strict=True):
            factor = builder.load(builder.gep(pointer, [offset]))
            factor.align = 4
            unset = ir.Constant(self._vector, ir.Undefined)
            factor = builder.insert_element(unset, factor, ir.Constant(ir.IntType(32), 0))
            factor = builder.shuffle_vector(factor, unset, self._everywhere)
            new.append(self.add(builder.fmul(factor, panel, flags=("contract",)), total))
        return new

    def loop(self, first: Any, stop: Any, step: int, values: list[Any], body: Callable[..., list[Any]]) -> list[Any]:
        """Run `values = body(p, values)` for p from first to stop by step; returns the last values."""
        builder = self._builder
        before = builder.block
        head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        p = builder.phi(ir.IntType(64))
        held = [builder.phi(value.type) for value in values]
        p.add_incoming(first, before)
        for phi, value in zip(held, values, strict=True):
            phi.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", p, stop), inside, after)
        builder.position_at_end(inside)
        new = body(p, held)
        following = builder.add(p, self.whole(step))
        builder.branch(head)
        p.add_incoming(following, builder.block)
        for phi, value in zip(held, new, strict=True):
            phi.add_incoming(value, builder.block)
        builder.position_at_end(after)
        return held


tile_6x16, tile_6x8 = _tile(MANY, PANEL), _tile(MANY, HALF)
tile_4x16, tile_4x8 = _tile(SOME, PANEL), _tile(SOME, HALF)
tile_1x16, tile_1x8 = _tile(1, PANEL), _tile(1, HALF)

COMPILED = {
    tile: _compiled_tile(rows, columns)
    for tile, rows, columns in (
        (tile_6x16, MANY, PANEL), (tile_6x8, MANY, HALF),
        (tile_4x16, SOME, PANEL), (tile_4x8, SOME, HALF),
        (tile_1x16, 1, PANEL), (tile_1x8, 1, HALF),
    )
}  # fmt: skip
