"""Elementary functions in single precision, by arithmetic alone, so that loops over environments can be vectorized.

The C library's functions are calls, and a loop with a call stays scalar. Sine and cosine have an error below 2e-7 for
|x| < 1,000 and below 1e-5 for |x| < 30,000, growing from there. The docstrings of the others state their errors, which
hold for every float32; a NaN stays NaN. CUDA uses its own functions.
"""

from math import floor, inf, nan
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

INVERSE_PI = np.float32(0.3183098861837907)
# pi in three parts (Cody and Waite): the products of the first two with small integers are exact.
PI_HIGH = np.float32(3.140625)
PI_MIDDLE = np.float32(0.0009675025939941406)
PI_LOW = np.float32(1.5099580252808664e-07)

INVERSE_LOG_2 = np.float32(1.4426950408889634)
LOG_2_HIGH = np.float32(0.693359375)  # the product with an integer below 2^15 is exact
LOG_2_LOW = np.float32(-2.12194440e-4)
ROUNDING = np.float32(12582912 + 126)
EXP_LOWEST, EXP_HIGHEST = np.float32(-86.9), np.float32(89.0)
SMALLEST_NORMAL = np.float32(1.1754943508222875e-38)
SQRT_HALF_BITS = 0x3F3504F3
TANH_HIGHEST = np.float32(7.905)
ERF_HIGHEST = np.float32(4.0)


def sine_of_reduced(x):
    """sin(x) for |x| <= pi/2: x + x^3 P(x^2), P fitted to a relative error of 6e-9."""
    square = x * x
    series = np.float32(2.6057834929815726e-06)
    series = series * square - np.float32(0.00019809603691101074)
    series = series * square + np.float32(0.00833306647837162)
    series = series * square - np.float32(0.16666659712791443)
    return x + x * square * series


def sin(x):
    turns = np.float32(floor(x * INVERSE_PI + np.float32(0.5)))
    reduced = ((x - turns * PI_HIGH) - turns * PI_MIDDLE) - turns * PI_LOW
    return sine_of_reduced(-reduced if int(turns) & 1 else reduced)


def cos(x):
    # cos(x) = sin(x + pi/2): half turns, so that the reduction stays as exact as for the sine.
    turns = np.float32(floor(x * INVERSE_PI)) + np.float32(0.5)
    reduced = ((x - turns * PI_HIGH) - turns * PI_MIDDLE) - turns * PI_LOW
    return sine_of_reduced(reduced if int(turns - np.float32(0.5)) & 1 else -reduced)


def _bits_of(typing_context: Any, x: Any) -> Any:  # noqa: ARG001
    """Return the 32 bits of a float32, as an integer."""
    if x != types.float32:
        raise TypingError(f"the fast elementary functions are for float32, not {x}: cast with np.float32")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(x), generate


def _float_of(typing_context: Any, bits: Any) -> Any:  # noqa: ARG001
    """Return the float32 with the bits of an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


bits_of: Any = intrinsic(_bits_of)
float_of: Any = intrinsic(_float_of)


def reduced_exponent(x):
    """Return 2^n / 2 and e^r - 1, where x = n log(2) + r and |r| <= log(2) / 2; x from EXP_LOWEST to EXP_HIGHEST."""
    # Adding 1.5 * 2^23 rounds to an integer in the lowest bits; adding 126 more makes these the exponent's bits.
    shifted = x * INVERSE_LOG_2 + ROUNDING
    turns = shifted - ROUNDING
    half_power = float_of(bits_of(shifted) << 23)
    rest = (x - turns * LOG_2_HIGH) - turns * LOG_2_LOW
    series = np.float32(1.9875691500e-4)
    series = series * rest + np.float32(1.3981999507e-3)
    series = series * rest + np.float32(8.3334519073e-3)
    series = series * rest + np.float32(4.1665795894e-2)
    series = series * rest + np.float32(1.6666665459e-1)
    series = series * rest + np.float32(5.0000001201e-1)
    return half_power, series * (rest * rest) + rest


def exp(x):
    """Return e^x, or zero where it is below 2e-38; relative error below 2e-7."""
    # The comparisons are ordered so that a NaN passes each of them.
    held = EXP_HIGHEST if x > EXP_HIGHEST else (EXP_LOWEST if x < EXP_LOWEST else x)
    half_power, less_one = reduced_exponent(held)
    # Doubled last, since 2^128 is no float32 and e^x for the largest x is.
    value = (half_power * (less_one + np.float32(1))) * np.float32(2)
    return np.float32(0) if x < EXP_LOWEST else value


def expm1(x):
    """Return e^x - 1 without losing the digits of a small x; relative error below 2e-7."""
    held = EXP_HIGHEST if x > EXP_HIGHEST else (EXP_LOWEST if x < EXP_LOWEST else x)
    half_power, less_one = reduced_exponent(held)
    return (half_power * less_one + (half_power - np.float32(0.5))) * np.float32(2)


def log(x):
    """Return the natural logarithm: -inf for 0, NaN for negative numbers; error below 2e-7, absolute or relative."""
    tiny = x < SMALLEST_NORMAL
    bits = bits_of(x * np.float32(8388608) if tiny else x)
    turns = np.int32(bits - SQRT_HALF_BITS) >> 23
    rest = float_of(bits - (turns << 23)) - np.float32(1)  # the mantissa, from sqrt(1/2) to sqrt(2), minus one
    power = np.float32(turns) - (np.float32(23) if tiny else np.float32(0))
    square = rest * rest
    series = np.float32(7.0376836292e-2)
    series = series * rest - np.float32(1.1514610310e-1)
    series = series * rest + np.float32(1.1676998740e-1)
    series = series * rest - np.float32(1.2420140846e-1)
    series = series * rest + np.float32(1.4249322787e-1)
    series = series * rest - np.float32(1.6668057665e-1)
    series = series * rest + np.float32(2.0000714765e-1)
    series = series * rest - np.float32(2.4999993993e-1)
    series = series * rest + np.float32(3.3333331174e-1)
    low = series * (rest * square) + power * LOG_2_LOW - np.float32(0.5) * square
    value = power * LOG_2_HIGH + (rest + low)
    value = value if x < np.float32(inf) else x
    return value if x > np.float32(0) else (np.float32(-inf) if x == np.float32(0) else np.float32(nan))


def tanh(x):
    """Return the hyperbolic tangent, by a quotient of polynomials; error below 3e-7, or 4e-7 without FMA."""
    held = TANH_HIGHEST if x > TANH_HIGHEST else (-TANH_HIGHEST if x < -TANH_HIGHEST else x)
    square = held * held
    above = np.float32(-2.76076847742355e-16)
    above = above * square + np.float32(2.00018790482477e-13)
    above = above * square - np.float32(8.60467152213735e-11)
    above = above * square + np.float32(5.12229709037114e-08)
    above = above * square + np.float32(1.48572235717979e-05)
    above = above * square + np.float32(6.37261928875436e-04)
    above = above * square + np.float32(4.89352455891786e-03)
    below = np.float32(1.19825839466702e-06)
    below = below * square + np.float32(1.18534705686654e-04)
    below = below * square + np.float32(2.26843463243900e-03)
    below = below * square + np.float32(4.89352518554385e-03)
    return held * above / below  # below 1 for every x


def erf(x):
    """Return the error function of x, a quotient of polynomials; error below 5e-7."""
    held = ERF_HIGHEST if x > ERF_HIGHEST else (-ERF_HIGHEST if x < -ERF_HIGHEST else x)
    square = held * held
    above = np.float32(-2.72614225801306e-10)
    above = above * square + np.float32(2.77068142495902e-08)
    above = above * square - np.float32(2.10102402082508e-06)
    above = above * square - np.float32(5.69250639462346e-05)
    above = above * square - np.float32(7.34990630326855e-04)
    above = above * square - np.float32(2.95459980854025e-03)
    above = above * square - np.float32(1.60960333262415e-02)
    below = np.float32(-1.45660718464996e-05)
    below = below * square - np.float32(2.13374055278905e-04)
    below = below * square - np.float32(1.68282697438203e-03)
    below = below * square - np.float32(7.37332916720468e-03)
    below = below * square - np.float32(1.42647390514189e-02)
    value = held * above / below
    return np.float32(1) if value > np.float32(1) else (np.float32(-1) if value < np.float32(-1) else value)
