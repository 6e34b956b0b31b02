"""Activations against torch, as plain Python and as compiled for learners."""

import math
import re

import numba
import numpy as np
import pytest
import torch

from velocirl.engine.compiler import compiling
from velocirl.engine.compiler.caching.cache import NoCache
from velocirl.engine.compiler.compiling import compile_loop, learning_translator
from velocirl.networks.activations import ACTIVATIONS, activation_from

ORACLES = {
    "relu": torch.nn.functional.relu,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "elu": torch.nn.functional.elu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "linear": lambda x: x,
}
INPUTS = np.concatenate([np.linspace(-12, 12, 4801), np.linspace(-1e-3, 1e-3, 101), [-90.0, -30.0, 30.0, 90.0]])
names = pytest.mark.parametrize("name", ACTIVATIONS)


def expected(name, inputs):
    """Values and slopes by torch, in double precision."""
    x = torch.tensor(np.asarray(inputs, np.float64), requires_grad=True)
    y = ORACLES[name](x)
    y.sum().backward()
    return y.detach().numpy(), x.grad.numpy()


def loop_of(activation):
    value, slope = activation.value, activation.slope

    def loop(inputs, values, slopes):
        for i in range(len(inputs)):
            values[i] = value(inputs[i])
            slopes[i] = slope(inputs[i], values[i])

    return loop


def compiled(name, inputs):
    inputs = np.asarray(inputs, np.float32)
    values, slopes = np.empty_like(inputs), np.empty_like(inputs)
    arguments = (inputs, values, slopes)
    compile_loop(loop_of(activation_from(name)), arguments, learning_translator("activations"), before=lambda: None)(
        *arguments
    )
    return values, slopes


def plain(name, inputs):
    activation = activation_from(name)
    values = [activation.value(x) for x in map(float, inputs)]
    return values, [activation.slope(float(x), y) for x, y in zip(inputs, values, strict=True)]


def test_each_activation_has_an_oracle():
    assert ACTIVATIONS.keys() == ORACLES.keys()
    assert all(activation.name == name for name, activation in ACTIVATIONS.items())


@names
def test_plain_python_is_torch(name):
    for ours, theirs in zip(plain(name, INPUTS), expected(name, INPUTS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@names
def test_compiled_code_is_torch(name):
    inputs = INPUTS.astype(np.float32)
    for ours, theirs in zip(compiled(name, inputs), expected(name, inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


@names
def test_at_zero_the_slope_is_torchs(name):
    assert plain(name, [0.0])[1][0] == pytest.approx(expected(name, [0.0])[1][0], abs=1e-15)
    assert compiled(name, [0.0])[1][0] == pytest.approx(expected(name, [0.0])[1][0], abs=1e-7)


@names
def test_a_nan_is_not_hidden(name):
    assert np.isnan(plain(name, [math.nan])[0][0])
    assert np.isnan(compiled(name, [math.nan])[0][0])


@names
def test_no_finite_input_overflows(name):
    sizes = np.geomspace(1e-40, 2.0**100, 1000, dtype=np.float32)
    inputs = np.concatenate([-sizes, sizes])
    for values, slopes in (plain(name, inputs), compiled(name, inputs)):
        assert np.isfinite(values).all()
        assert np.isfinite(slopes).all()


@names
def test_the_slope_reads_the_input_only_where_it_says_so(name):
    activation = activation_from(name)
    same = activation.slope(0.7, 0.3) == activation.slope(-0.4, 0.3)
    assert same != activation.needs_input


@names
def test_gains_are_torchs(name):
    known = name not in ("elu", "gelu", "silu")
    gain = torch.nn.init.calculate_gain(name) if known else math.sqrt(2)
    assert activation_from(name).gain == pytest.approx(gain, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "linear"])
def test_the_compiled_loop_is_vectorised(name):
    row = numba.typeof(np.empty(1, np.float32))
    translator = learning_translator("activations")
    made = compiling._load(loop_of(activation_from(name)), (row,) * 3, translator, NoCache(lambda: None))
    (code,) = made.inspect_llvm().values()
    assert re.search(r"<(4|8|16) x float>", code)
    assert not re.search(r"@(llvm\.)?(exp|expm1|tanh|erf)f?[.(]", code)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown activation 'rellu': did you mean 'relu'"):
        activation_from("rellu")
    with pytest.raises(ValueError, match="there are relu, leaky_relu, elu"):
        activation_from("quadratic")
