"""Single precision without casts in the source.

Numba types `0.5` as a double, and a double spreads: `0.5 * state.angle` would be computed and stored in double
precision. Here the float constants of a function become float32, and an integer beside a float32 is taken as a
float32 (as NumPy takes Python's own numbers), so that a clean source runs in single precision. Environments with a
float64 field are left in double precision.
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
    """A constant in single precision: floats, tuples of them, arrays, and the code of nested functions."""
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
    """The argument types of a call after the rule: an integer beside a float32 is a float32."""
    integers = [isinstance(types.unliteral(argument), (types.Integer, types.Boolean)) for argument in arguments]
    if function in _DIVISIONS or function in _REAL_FUNCTIONS:
        applies = all(integers) or types.float32 in arguments
    elif function in _POWERS:  # x ** 2 stays a power with a whole exponent, 2 ** x becomes a real one
        applies = len(arguments) == 2 and integers[0] and arguments[1] == types.float32
    else:
        applies = function in _ARITHMETIC and types.float32 in arguments
    if not applies:
        return arguments
    return tuple(types.float32 if whole else argument for whole, argument in zip(integers, arguments, strict=True))


@contextmanager
def single_precision(typing_context: Any, types: Any) -> Iterator[None]:
    """While this lasts, a target's typing follows the rule above; numba's compiler lock keeps other threads out.

    `types` is the target's own module of types: numba-cuda has a set apart from numba's.
    """
    resolve, unify = typing_context.resolve_function_type, typing_context.unify_pairs

    def resolve_function_type(function: Any, arguments: Any, keywords: Any) -> Any:
        if isinstance(function, types.Dispatcher):
            # Else numba compiles a function anew for each whole number that is written as one of its arguments.
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
