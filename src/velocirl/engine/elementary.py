"""Sine and cosine in single precision, from arithmetic alone, so that the loop over copies can be vectorised.

The C library's functions are calls, and a loop with a call stays scalar. Error below 2e-7 for |x| < 1000 and below
1e-5 for |x| < 30000, growing from there; CUDA uses its own functions.
"""

from math import floor

import numpy as np

INVERSE_PI = np.float32(0.3183098861837907)
# pi in three parts (Cody and Waite): the products of the first two with small integers are exact.
PI_HIGH = np.float32(3.140625)
PI_MIDDLE = np.float32(0.0009675025939941406)
PI_LOW = np.float32(1.5099580252808664e-07)


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
