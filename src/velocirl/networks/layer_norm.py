"""Layer norms for one block of rows: plain functions, compiled with the passes of a network.

y = gain * x' + shift with x' = (x - mean) / sqrt(variance + EPSILON), with the mean and variance of each row. The
variance is computed after centering, so that a large mean costs no precision.
"""

from math import sqrt

import numpy as np

from velocirl.engine.compiler.arithmetic.products import HALF

EPSILON = 1e-5  # as in torch.nn.LayerNorm
_STEP = np.uint64(HALF)  # unsigned: indices need no test for negative values


def total(x, columns):
    """Sum a row whose width is a multiple of 8: 8 parallel sums, which become vector instructions."""
    a = b = c = d = e = f = g = h = np.float32(0)
    for block in range(np.uint64(columns) // _STEP):
        at = block * _STEP
        part = x[at : at + _STEP]
        a += part[0]
        b += part[1]
        c += part[2]
        d += part[3]
        e += part[4]
        f += part[5]
        g += part[6]
        h += part[7]
    return ((a + e) + (c + g)) + ((b + f) + (d + h))


def total_of_products(x, y, columns):
    """Sum the products of two rows whose width is a multiple of 8."""
    a = b = c = d = e = f = g = h = np.float32(0)
    for block in range(np.uint64(columns) // _STEP):
        at = block * _STEP
        p, q = x[at : at + _STEP], y[at : at + _STEP]
        a += p[0] * q[0]
        b += p[1] * q[1]
        c += p[2] * q[2]
        d += p[3] * q[3]
        e += p[4] * q[4]
        f += p[5] * q[5]
        g += p[6] * q[6]
        h += p[7] * q[7]
    return ((a + e) + (c + g)) + ((b + f) + (d + h))


def normalise(
    linear, start, inverses, inverse_start, packed, gains, shifts, before, place, row, rows, outputs, columns
):
    """Normalize the rows at `start` in place for the backward pass, and write them with gain and shift to `place`.

    Columns beyond the outputs are zero before and after.
    """
    gain, shift = packed[gains : gains + columns], packed[shifts : shifts + columns]
    for i in range(rows):
        x = linear[start + i * row : start + i * row + columns]
        y = before[place + i * row : place + i * row + columns]
        mean = total(x, columns) / outputs
        for j in range(outputs):
            x[j] -= mean
        inverse = 1.0 / sqrt(total_of_products(x, x, columns) / outputs + EPSILON)
        inverses[inverse_start + i] = inverse
        for j in range(columns):
            x[j] *= inverse
            y[j] = gain[j] * x[j] + shift[j]


def descend_norm(
    deltas, delta, normal, start, inverses, inverse_start, packed, gains, row, rows, outputs, columns, sums, gain_sums,
    biases,
):  # fmt: skip
    """Compute the gradient of `normalise`'s input from its output's; add up the gradients of gains and biases."""
    gain = packed[gains : gains + columns]
    of_gain, of_bias = sums[gain_sums : gain_sums + columns], sums[biases : biases + columns]
    for i in range(rows):
        d = deltas[delta + i * row : delta + i * row + columns]
        x = normal[start + i * row : start + i * row + columns]
        for j in range(columns):
            of_gain[j] += d[j] * x[j]
            d[j] *= gain[j]
        mean, along = total(d, columns) / outputs, total_of_products(d, x, columns) / outputs
        inverse = inverses[inverse_start + i]
        for j in range(outputs):
            d[j] = (d[j] - mean - x[j] * along) * inverse
            of_bias[j] += d[j]
