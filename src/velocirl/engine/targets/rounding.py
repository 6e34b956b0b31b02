"""Products rounded on a GPU as on a CPU, without fused multiply-add."""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils

ROUNDED = {32: "__nv_fmul_rn", 64: "__nv_dmul_rn"}  # by bits; functions of CUDA's own library, which are never fused


def rounded_product(intrinsic: Any) -> Any:
    """Return `random.product` for a GPU, compiled with `intrinsic`."""

    @intrinsic
    def product_compiled(typing_context: Any, one: Any, other: Any) -> Any:
        kind = typing_context.resolve_function_type(operator.mul, (one, other), {}).return_type

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pairs = zip(arguments, signature.args, strict=True)
            factors = [context.cast(builder, value, given, kind) for value, given in pairs]
            number = context.get_value_type(kind)
            shape = ir.FunctionType(number, [number, number])
            return builder.call(cgutils.get_or_insert_function(builder.module, shape, ROUNDED[kind.bitwidth]), factors)

        return kind(one, other), generate

    return product_compiled
