"""Initial weights: their shapes, bounds and variances against torch.nn.init, and that a seed decides them."""

import math

import numpy as np
import pytest
import torch

from velocirl.networks.initialisers import INITIALISERS, initialiser_from

names = pytest.mark.parametrize("name", INITIALISERS)
shapes = pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (100, 30), (30, 100), (5, 1), (1, 5)])


def weights(name, inputs, outputs, gain=1.0, seed=0):
    return initialiser_from(name)(np.random.default_rng(seed), inputs, outputs, gain)


def of_torch(name, inputs, outputs, gain):
    """The weights that torch makes, stored as torch does: (outputs, inputs)."""
    tensor = torch.empty(outputs, inputs)
    generator = torch.Generator().manual_seed(0)
    if name.startswith("xavier"):
        return getattr(torch.nn.init, f"{name}_")(tensor, gain, generator=generator).numpy()
    kind = f"kaiming_{name.removeprefix('he_')}_"  # whose gain is that of a nonlinearity, not a number
    ours = getattr(torch.nn.init, kind)(tensor, nonlinearity="linear", generator=generator)
    return gain * ours.numpy()


@names
@shapes
def test_weights_are_single_precision_rows_of_inputs(name, inputs, outputs):
    made = weights(name, inputs, outputs)
    assert made.shape == (inputs, outputs)
    assert made.dtype == np.float32
    assert made.flags.c_contiguous


@shapes
@pytest.mark.parametrize("gain", [1.0, math.sqrt(2), 0.01])
def test_orthogonal_columns_or_rows_are_at_right_angles(inputs, outputs, gain):
    made = weights("orthogonal", inputs, outputs, gain).astype(np.float64) / gain
    products = made.T @ made if inputs >= outputs else made @ made.T
    np.testing.assert_allclose(products, np.eye(min(inputs, outputs)), atol=1e-5)


def test_orthogonal_matrices_are_uniformly_distributed():
    """Without the signs of the decomposition the diagonal would always have the same sign."""
    made = np.array([weights("orthogonal", 3, 3, seed=seed) for seed in range(2000)])
    deviation = math.sqrt(1 / 3 / 2000)  # each entry has mean 0 and variance 1/3
    assert np.abs(made.mean(axis=0)).max() < 5 * deviation
    assert np.abs((made**2).mean(axis=0) - 1 / 3).max() < 5 * math.sqrt(4 / 45 / 2000)


@pytest.mark.parametrize("name", ["xavier_uniform", "xavier_normal", "he_uniform", "he_normal"])
@pytest.mark.parametrize(("inputs", "outputs", "gain"), [(400, 100, 1.0), (100, 400, math.sqrt(2)), (300, 300, 0.5)])
def test_variances_are_torchs(name, inputs, outputs, gain):
    ours, theirs = weights(name, inputs, outputs, gain), of_torch(name, inputs, outputs, gain)
    # Both variances are estimates; that of a normal one deviates by sqrt(2 / size), the widest of the two kinds.
    assert ours.var(dtype=np.float64) == pytest.approx(theirs.var(dtype=np.float64), rel=5 * math.sqrt(4 / ours.size))
    assert abs(ours.mean(dtype=np.float64)) < 5 * ours.std() / math.sqrt(ours.size)


@pytest.mark.parametrize("name", ["xavier_uniform", "he_uniform"])
def test_uniform_weights_fill_torchs_bounds(name):
    ours, theirs = weights(name, 300, 200, 1.5), of_torch(name, 300, 200, 1.5)
    bound = 1.5 * math.sqrt(6 / 500 if name == "xavier_uniform" else 3 / 300)
    for made in (ours, theirs):
        assert 0.999 * bound < np.abs(made).max() <= bound * (1 + 1e-6)


@pytest.mark.parametrize("name", ["xavier_normal", "he_normal"])
def test_normal_weights_have_tails(name):
    made = weights(name, 300, 200)
    assert 3.5 < np.abs(made).max() / made.std() < 6.0


def test_zeros_are_zero():
    assert not weights("zeros", 7, 3).any()


@pytest.mark.parametrize("name", [name for name in INITIALISERS if name != "zeros"])
def test_a_seed_decides_the_weights(name):
    np.testing.assert_array_equal(weights(name, 20, 10, seed=3), weights(name, 20, 10, seed=3))
    assert (weights(name, 20, 10, seed=3) != weights(name, 20, 10, seed=4)).any()


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown initialiser 'ortogonal': did you mean 'orthogonal'"):
        initialiser_from("ortogonal")
    with pytest.raises(ValueError, match="there are orthogonal, xavier_uniform"):
        initialiser_from("42")
