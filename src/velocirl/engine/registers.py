"""Holding a copy's record in registers during a step: read whole before, written whole after.

A loop whose body reads a field inside a branch, or writes one, cannot be vectorised; one that works on a local copy
can. In plain Python the row itself serves as the copy.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def load(row):
    """The row of a record array, for use until `store`."""
    return row


def store(row, held):
    """Write what `load` gave back into its row."""


def _copy(builder: Any, target: Any, source: Any, size: int) -> None:
    cgutils.raw_memcpy(builder, target, source, ir.Constant(ir.IntType(64), size), 1)


@intrinsic
def load_compiled(typing_context: Any, row: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        held = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(8), row.size))
        held.align = 16
        _copy(builder, held, arguments[0], row.size)
        return builder.bitcast(held, arguments[0].type)

    return row(row), generate


@intrinsic
def store_compiled(typing_context: Any, row: Any, held: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        _copy(builder, arguments[0], arguments[1], row.size)
        return context.get_dummy_value()

    return types.void(row, held), generate


COMPILED = {load: load_compiled, store: store_compiled}
