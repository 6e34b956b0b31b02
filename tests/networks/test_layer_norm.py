"""Layer norms as plain functions, against torch.nn.functional.layer_norm in double precision."""

import numpy as np
import pytest
import torch
from torch.nn.functional import layer_norm

from velocirl.networks.layer_norm import descend_norm, normalise

ROW = 24  # how far rows are apart: wider than they are


def through(rows, width, gain, shift, weights):
    """What is normalised, and the gradients of rows, gains, and of the biases added to the rows."""
    count, columns = len(rows), -(-width // 8) * 8
    linear, before, deltas = (np.zeros(count * ROW, np.float32) for _ in range(3))
    inverses, packed, sums = np.zeros(count, np.float32), np.zeros(2 * ROW, np.float32), np.zeros(2 * ROW, np.float32)
    linear.reshape(count, ROW)[:, :width] = rows
    deltas.reshape(count, ROW)[:, :width] = weights
    packed[:width], packed[ROW : ROW + width] = gain, shift
    normalise(linear, 0, inverses, 0, packed, 0, ROW, before, 0, ROW, count, width, columns)
    descend_norm(deltas, 0, linear, 0, inverses, 0, packed, 0, ROW, count, width, columns, sums, 0, ROW)
    for padding in (before.reshape(count, ROW)[:, width:], deltas.reshape(count, ROW)[:, width:]):
        assert not np.nan_to_num(padding).any()
    made = before.reshape(count, ROW)[:, :width], deltas.reshape(count, ROW)[:, :width]
    return *made, sums[:width], sums[ROW : ROW + width]


def expected_of(rows, width, gain, shift, weights):
    """The same by autograd."""
    x, gain, shift = (torch.tensor(np.float64(one), requires_grad=True) for one in (rows, gain, shift))
    made = layer_norm(x, (width,), gain, shift)
    made.backward(torch.tensor(np.float64(weights)))
    return [one.detach().numpy() for one in (made, x.grad, gain.grad, x.grad.sum(0))]


def case(width, seed=0):
    generator = np.random.default_rng(seed)
    shapes = (5, width), (width,), (width,), (5, width)
    return [generator.standard_normal(shape).astype(np.float32) for shape in shapes]


def near(found, expected, tolerance=2e-6):
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1.0)


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 17])
def test_both_ways_are_those_of_autograd(width):
    rows, gain, shift, weights = case(width)
    found, expected = (one(rows, width, gain, shift, weights) for one in (through, expected_of))
    for one, wanted in zip(found, expected, strict=True):
        near(one, wanted)


def test_a_large_mean_takes_no_digits_of_the_variance():
    """Of rows around 4096, of which single precision holds steps of 1/2048 exactly."""
    rows, gain, shift, weights = case(17)
    rows = 4096 + np.round(rows * 64) / 64
    found, expected = (one(rows, 17, gain, shift, weights) for one in (through, expected_of))
    for one, wanted in zip(found, expected, strict=True):
        near(one, wanted, 1e-3)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e6])
def test_rows_of_one_number_become_the_shift(value):
    _, gain, shift, weights = case(16)
    made, below, _, _ = through(np.full((5, 16), value, np.float32), 16, gain, shift, weights)
    np.testing.assert_array_equal(made, np.broadcast_to(shift, made.shape))
    assert np.isfinite(below).all()


def test_one_nan_is_seen_in_its_row_alone():
    rows, gain, shift, weights = case(9)
    rows[2, 3] = np.nan
    made = through(rows, 9, gain, shift, weights)[0]
    assert np.isnan(made[2]).all()
    assert np.isfinite(np.delete(made, 2, 0)).all()
