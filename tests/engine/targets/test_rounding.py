"""The product of a GPU, compiled for a CPU with functions in the place of those of CUDA's library."""

import ctypes

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest
from numba.extending import intrinsic

from velocirl.engine.targets.rounding import ROUNDED, rounded_product

CALLS = []


def stand_in(kind, bits):
    def multiply(one, other):
        CALLS.append(bits)
        return one * other

    return ctypes.CFUNCTYPE(kind, kind, kind)(multiply)


KEPT = {bits: stand_in(kind, bits) for bits, kind in ((32, ctypes.c_float), (64, ctypes.c_double))}


@pytest.mark.parametrize(
    ("one", "other", "bits"),
    [
        (np.float32(0.18), np.float32(0.3), 32),
        (np.float64(0.18), np.float32(0.3), 64),
        (3, np.float64(0.1), 64),
    ],
)
def test_it_is_of_the_kind_that_a_product_has_and_calls_what_is_never_fused(one, other, bits):
    for width, function in KEPT.items():
        llvm.add_symbol(ROUNDED[width], ctypes.cast(function, ctypes.c_void_p).value)
    product = rounded_product(intrinsic)
    compiled = numba.njit(lambda first, second: product(first, second))
    CALLS.clear()
    assert compiled(one, other) == one * other
    assert [bits] == CALLS
