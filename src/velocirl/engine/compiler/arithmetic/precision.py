"""Single precision without casts in the source.

Numba types `0.5` as a double, and a double spreads: `0.5 * state.angle` would be computed and stored in double
precision. Here the float constants of a function become float32. An integer combined with a float32 is treated as a
float32, as NumPy treats Python's own numbers. Clean source therefore runs in single precision. Environments with a
float64 field stay in double precision.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import numpy as np
from numba.core.compiler_lock import global_compiler_lock

_ARITHMETIC = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.floordiv,
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.imod, operator.ifloordiv,
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
    builtins.min, builtins.max, math.pow, math.atan2, math.hypot, math.copysign,
}  # fmt: skip
_DIVISIONS = {operator.truediv, operator.itruediv}
_POWERS = {operator.pow, operator.ipow, builtins.pow}
_REAL_FUNCTIONS = {
    builtins.float,
    math.sqrt, math.exp, math.log, math.sin, math.cos, math.tan, math.asin, math.acos, math.atan,
    math.sinh, math.cosh, math.tanh, math.log1p, math.expm1, math.log2, math.log10,
}  # fmt: skip


def single(value: Any) -> Any:
    """Convert a constant to single precision: floats, tuples of them, arrays, and the code of nested functions."""
    if type(value) is float:
        return np.float32(value)
    if isinstance(value, tuple):
        items = [single(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, np.ndarray) and value.dtype == np.float64:
        return value.astype(np.float32)
    if isinstance(value, CodeType):
        return value.replace(co_consts=tuple(single(constant) for constant in value.co_consts))
    return value


def _promoted(types: Any, function: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the argument types of a call after the rule: an integer combined with a float32 is a float32."""
    integers = [isinstance(types.unliteral(argument), (types.Integer, types.Boolean)) for argument in arguments]
    if function in _DIVISIONS or function in _REAL_FUNCTIONS:
        applies = all(integers) or types.float32 in arguments
    elif function in _POWERS:  # x ** 2 stays a power with an integer exponent, 2 ** x becomes a real one
        applies = len(arguments) == 2 and integers[0] and arguments[1] == types.float32
    else:
        applies = function in _ARITHMETIC and types.float32 in arguments
    if not applies:
        return arguments
    return tuple(types.float32 if whole else argument for whole, argument in zip(integers, arguments, strict=True))


@contextmanager
def single_precision(typing_context: Any, types: Any) -> Iterator[None]:
    """Apply the rule above to a target's typing in this context; numba's compiler lock keeps other threads out.

    `types` is the target's own module of types: numba-cuda's set is separate from numba's.
    """
    resolve, unify = typing_context.resolve_function_type, typing_context.unify_pairs

    def resolve_function_type(function: Any, arguments: Any, keywords: Any) -> Any:
        if isinstance(function, types.Dispatcher):
            # Otherwise numba compiles a function again for each literal integer among its arguments.
            arguments = tuple(types.unliteral(argument) for argument in arguments)
        elif isinstance(function, types.Function):
            arguments = _promoted(types, function.typing_key, tuple(arguments))
        elif callable(function):
            arguments = _promoted(types, function, tuple(arguments))
        return resolve(function, arguments, keywords)

    def unify_pairs(first: Any, second: Any) -> Any:
        if types.float32 in (first, second) and any(isinstance(one, types.Integer) for one in (first, second)):
            return types.float32
        return unify(first, second)

    with global_compiler_lock:
        typing_context.resolve_function_type, typing_context.unify_pairs = resolve_function_type, unify_pairs
        try:
            yield
        finally:
            del typing_context.resolve_function_type, typing_context.unify_pairs
