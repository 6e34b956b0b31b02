"""Clipping against torch, in plain Python and compiled."""

from math import inf, isnan, nan

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from velocirl.engine.compiler.compiling import compile_loop, cpu_translator
from velocirl.optim.clipping import clip_value, norm_scale

numbers = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=12)


def clip_all(gradient, max_norm, limit, scales):
    for i in range(gradient.shape[0]):
        scales[i] = norm_scale(gradient[i] * gradient[i], max_norm)
        gradient[i] = clip_value(gradient[i], limit)


@pytest.fixture(scope="module")
def clip_compiled():
    arguments = (np.zeros(1, np.float32), np.float32(1), np.float32(1), np.zeros(1, np.float32))
    return compile_loop(clip_all, arguments, cpu_translator("clipping", double=False), before=lambda: None)


@given(numbers, st.floats(0.01, 100))
def test_clipping_by_norm_is_that_of_torch(gradient, max_norm):
    parameter = torch.nn.Parameter(torch.zeros(len(gradient), dtype=torch.float64))
    parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    torch.nn.utils.clip_grad_norm_([parameter], max_norm)
    scale = norm_scale(float(np.sum(np.square(gradient))), max_norm)
    np.testing.assert_allclose(scale * np.array(gradient), parameter.grad.numpy(), rtol=1e-12, atol=1e-300)


@given(numbers, st.floats(0.01, 100))
def test_clipping_by_value_is_that_of_torch(gradient, limit):
    parameter = torch.nn.Parameter(torch.zeros(len(gradient), dtype=torch.float64))
    parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    torch.nn.utils.clip_grad_value_([parameter], limit)
    np.testing.assert_array_equal([clip_value(number, limit) for number in gradient], parameter.grad.numpy())


@pytest.mark.parametrize("off", [0.0, -1.0])
def test_zero_or_less_is_off(off):
    assert norm_scale(1e6, off) == 1.0
    assert norm_scale(0.0, off) == 1.0
    assert [clip_value(number, off) for number in (-1e6, 0.0, 3.0)] == [-1e6, 0.0, 3.0]


def test_compiled_is_plain_and_keeps_what_is_not_finite(clip_compiled):
    values = np.array([-inf, -3.0, -0.5, -0.0, 0.5, 3.0, inf, nan], np.float32)
    clipped, scales = values.copy(), np.zeros(8, np.float32)
    clip_compiled(clipped, np.float32(1), np.float32(2), scales)
    np.testing.assert_array_equal(clipped, [-2.0, -2.0, -0.5, 0.0, 0.5, 2.0, 2.0, nan])
    np.testing.assert_allclose(scales, [0.0, 1 / 3, 1.0, 1.0, 1.0, 1 / 3, 0.0, nan], rtol=1e-6)
    plain_clipped, plain_scales = values.copy(), np.zeros(8, np.float32)
    clip_all(plain_clipped, np.float32(1), np.float32(2), plain_scales)
    np.testing.assert_array_equal(clipped, plain_clipped)
    np.testing.assert_allclose(scales, plain_scales, rtol=1e-6)
    clip_compiled(clipped := values.copy(), np.float32(-1), np.float32(-1), scales)
    np.testing.assert_array_equal(clipped, values)
    np.testing.assert_array_equal(scales, 1.0)


def test_a_nan_stays_a_nan():
    assert isnan(norm_scale(nan, 0.5))
    assert isnan(clip_value(nan, 0.5))
    assert isnan(clip_value(nan, 0.0))
