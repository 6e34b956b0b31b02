"""Products of small matrices, in plain Python and compiled, against NumPy in double precision."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from velocirl.engine.compiler.arithmetic.products import HALF, PANEL, multiply, padded
from velocirl.engine.compiler.compiling import add_kernel, compile_loop, learning_translator

ROWS, COLUMNS, DEPTHS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13), (8, 16, 24, 32, 40), (0, 1, 2, 3, 4, 5, 17, 64, 70)
SENTINEL = np.float32(-77.0)


def product(left, left_start, left_row, left_step, right, right_start, right_panel, right_step,
            begin, begin_start, begin_row, result, result_start, result_row, rows, columns, depth):  # fmt: skip
    multiply(left, left_start, left_row, left_step, right, right_start, right_panel, right_step,
             begin, begin_start, begin_row, result, result_start, result_row, rows, columns, depth)  # fmt: skip


def in_panels(matrix):
    """The columns of a matrix in panels of sixteen, one after another; the last one filled up with zeros."""
    depth, columns = matrix.shape
    panels = -(-columns // PANEL)
    wide = np.zeros((depth, panels * PANEL), np.float32)
    wide[:, :columns] = matrix
    return np.ascontiguousarray(wide.reshape(depth, panels, PANEL).transpose(1, 0, 2)).reshape(-1)


@pytest.fixture(scope="module", params=["python", "compiled"])
def run(request):
    """The product as it stands, or compiled for a learner."""
    if request.param == "python":
        return multiply
    translator = learning_translator("products")
    add_kernel(translator, multiply, disjoint=False)
    flat, whole = np.zeros(1, np.float32), 0
    arguments = (flat, *[whole] * 3, flat, *[whole] * 3, flat, *[whole] * 2, flat, *[whole] * 5)
    return compile_loop(product, arguments, translator, before=lambda: None)


def check(run, rows, columns, depth, transposed, begins, seed, start=0):
    """One product inside larger arrays, of which nothing else may change."""
    generator = np.random.default_rng(seed)
    left = generator.standard_normal((rows, depth)).astype(np.float32)
    right = generator.standard_normal((depth, columns)).astype(np.float32)
    flat_left = np.concatenate([np.full(start, np.nan, np.float32), (left.T if transposed else left).reshape(-1)])
    steps = (1, rows) if transposed else (depth, 1)
    result_row = columns + 5
    result = np.full(start + rows * result_row + PANEL, SENTINEL)
    inside = result[start : start + rows * result_row].reshape(rows, result_row)
    if begins == "row":
        begin = generator.standard_normal(columns).astype(np.float32)
        begun, placed = np.broadcast_to(begin, (rows, columns)).copy(), (begin, 0, 0)
    else:
        inside[:, :columns] = generator.standard_normal((rows, columns))
        begun, placed = inside[:, :columns].copy(), (result, start, result_row)
    run(
        flat_left, start, *steps,
        in_panels(right) if depth else np.zeros(PANEL, np.float32), 0, depth * PANEL, PANEL,
        *placed, result, start, result_row, rows, columns, depth,
    )  # fmt: skip
    expected = begun.astype(np.float64) + left.astype(np.float64) @ right.astype(np.float64)
    scale = np.abs(begun) + np.abs(left).astype(np.float64) @ np.abs(right)
    assert np.all(np.abs(inside[:, :columns] - expected) <= 1e-6 * scale + 1e-12)
    assert np.all(inside[:, columns:] == SENTINEL)
    assert np.all(result[:start] == SENTINEL)
    assert np.all(result[start + rows * result_row :] == SENTINEL)


@pytest.mark.parametrize("begins", ["row", "result"])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_size(transposed, begins, run):
    few = run is multiply
    for rows in (1, 5, 13) if few else ROWS:
        for columns in (8, 24) if few else COLUMNS:
            for depth in (0, 5) if few else DEPTHS:
                check(run, rows, columns, depth, transposed, begins, seed=rows * 1000 + columns + depth)


@settings(max_examples=60)
@given(
    rows=some.integers(1, 13), halves=some.integers(1, 5), depth=some.integers(0, 70), transposed=some.booleans(),
    begins=some.sampled_from(["row", "result"]), seed=some.integers(0, 2**32 - 1), start=some.integers(0, 9),
)  # fmt: skip
def test_any_product(run, rows, halves, depth, transposed, begins, seed, start):
    depth = min(depth, 12) if run is multiply else depth  # plain Python is slow
    check(run, rows, halves * HALF, depth, transposed, begins, seed, start)


def test_right_hand_side_may_lie_in_rows(run):
    """As the backward pass uses it: the right-hand matrix is a block of rows, and its panels lie side by side."""
    generator = np.random.default_rng(5)
    left = generator.standard_normal((7, 11)).astype(np.float32)
    right = generator.standard_normal((7, 24 + HALF)).astype(np.float32)
    result = np.zeros((11, 24), np.float32)
    flat = result.reshape(-1)
    run(left.reshape(-1), 0, 1, 11, right.reshape(-1), 0, PANEL, 32, flat, 0, 24, flat, 0, 24, 11, 24, 7)
    np.testing.assert_allclose(result, left.T.astype(np.float64) @ right[:, :24], rtol=1e-5, atol=1e-5)


def test_a_nan_stays_in_its_row(run):
    left = np.ones((6, 4), np.float32)
    left[2, 1] = np.nan
    flat = np.zeros(6 * 8, np.float32)
    run(left.reshape(-1), 0, 4, 1, in_panels(np.ones((4, 8), np.float32)), 0, 4 * PANEL, PANEL,
        flat, 0, 8, flat, 0, 8, 6, 8, 4)  # fmt: skip
    result = flat.reshape(6, 8)
    assert np.all(np.isnan(result[2]))
    assert np.all(np.delete(result, 2, axis=0) == 4)


def test_padded_columns():
    assert [padded(columns) for columns in (1, 7, 8, 9, 16, 17, 64, 65)] == [8, 8, 8, 16, 16, 24, 64, 72]
