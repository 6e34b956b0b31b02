"""How wide the vectors are that LLVM makes, told function by function."""

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest

from velocirl.engine.compiler.arithmetic import vectors
from velocirl.engine.compiler.compiling import (
    OPTIONS,
    UNCOUNTED,
    DisjointArguments,
    compiler_settings,
    learning_translator,
    named,
)


def add_squares(sums, numbers):
    for i in range(np.uint64(len(sums))):
        sums[i] += numbers[i] * numbers[i]


@pytest.mark.skipif(not llvm.get_host_cpu_features().get("avx512f"), reason="the processor has no vectors of 512 bits")
@pytest.mark.parametrize(("width", "whole"), [(512, True), (256, False)])
def test_functions_have_vectors_of_the_width_that_is_preferred(monkeypatch, width, whole):
    monkeypatch.setattr(vectors, "preferred_width", lambda: f'"prefer-vector-width"="{width}"')
    dispatcher = numba.njit(pipeline_class=DisjointArguments, **OPTIONS, **UNCOUNTED)(
        named(add_squares, learning_translator("vectors"))
    )
    with compiler_settings(double=False):
        dispatcher.compile((numba.typeof(np.zeros(1, np.float32)),) * 2)
    assembly = next(iter(dispatcher.inspect_asm().values()))
    assert ("zmm" in assembly) == whole
    assert "ymm" in assembly or whole
    sums, numbers = np.ones(100, np.float32), np.arange(100, dtype=np.float32)
    dispatcher(sums, numbers)
    np.testing.assert_array_equal(sums, 1 + numbers * numbers)


@pytest.mark.parametrize(("features", "attribute"), [
    ({"avx512f": True, "avx512fp16": True}, vectors.WHOLE_REGISTERS),
    ({"avx512f": True, "avx512fp16": False}, None),
    ({"avx2": True}, None),
])  # fmt: skip
def test_only_processors_known_to_gain_are_told(monkeypatch, features, attribute):
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: features)
    assert vectors.preferred_width.__wrapped__() == attribute
