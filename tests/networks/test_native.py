"""The native network against torch autograd in double precision: outputs, and gradients of parameters and inputs."""

import numpy as np
import pytest
import torch
from choosing import slow_but

from velocirl.networks.activations import ACTIVATIONS
from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.networks.native import NativeNetwork

TORCH = {
    "relu": torch.relu,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "elu": torch.nn.functional.elu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "linear": lambda x: x,
}
POLICY_AND_VALUE = (Segment(0, 3, 0.5), Segment(3, 1, 1.0))
NETWORKS = {
    "no hidden layer": (7, (Chain((), POLICY_AND_VALUE),)),
    "one unit": (1, (Chain((1,), (Segment(0, 1),)),)),
    "odd widths": (3, (Chain((17, 3), POLICY_AND_VALUE),)),
    "wide": (5, (Chain((70, 64, 17), POLICY_AND_VALUE),)),
    "apart": (20, (Chain((17, 8), (Segment(0, 3, 0.5),)), Chain((33,), (Segment(3, 1),)))),
    "free": (4, (Chain((8,), (Segment(0, 2, 0.5), Segment(2, 2, free=-0.5))), Chain((9, 5), (Segment(4, 1),)))),
    "only free": (2, (Chain((3,), (Segment(1, 2), Segment(0, 1, free=1.5), Segment(3, 1, free=2.5))),)),
    "crossed": (6, (Chain((), (Segment(2, 1),)), Chain((64, 64, 64), (Segment(3, 20), Segment(0, 2))))),
}


def reference(network, parameters, inputs):
    """The same network in torch: outputs (rows, outputs)."""
    columns = [None] * network.outputs
    last = inputs
    for place, layer in enumerate(network.plan.layers):
        width, size = int(layer["inputs"]), int(layer["outputs"])
        weights = parameters[int(layer["weights"]) :][: width * size].reshape(width, size)
        source = inputs if layer["first"] or width == 0 else last
        value = source[:, :width] @ weights + parameters[int(layer["biases"]) :][:size]
        if layer["normalised"]:
            gain, shift = (parameters[int(layer[name]) :][:size] for name in ("gains", "shifts"))
            value = torch.nn.functional.layer_norm(value, (size,), gain, shift)
        if layer["hidden"]:
            last = value = TORCH[network.activation](value)
        for segment in network.plan.segments[network.plan.segments["layer"] == place]:
            for k in range(segment["size"]):
                columns[segment["column"] + k] = value[:, segment["offset"] + k]
    return torch.stack(columns, dim=1)


def made(name, activation, seed=0, layer_norm=False):
    inputs, chains = NETWORKS[name]
    network = MLP(inputs, chains, activation, layer_norm=layer_norm)
    generator = np.random.default_rng(seed)
    parameters = network.initial_parameters(generator)
    parameters += 0.1 * generator.standard_normal(parameters.shape).astype(np.float32)
    return network, parameters, generator


def assert_near(found, expected, tolerance=1e-5):
    """Relative to the largest number, since single precision cannot know the small ones better than that."""
    assert found.shape == expected.shape
    scale = max(np.abs(expected).max(), 1e-3)
    assert np.abs(found - expected).max() <= tolerance * scale


def check(network, parameters, generator, rows, native=None):
    native = native or NativeNetwork(network, parameters)
    inputs = generator.standard_normal((rows, network.inputs)).astype(np.float32)
    weights = generator.standard_normal((rows, network.outputs)).astype(np.float32)
    gradient = np.full_like(parameters, np.nan)
    input_gradient = np.full_like(inputs, np.nan)
    outputs = native.forward(inputs)
    native.backward(inputs, weights, gradient, input_gradient)

    double = torch.tensor(parameters.astype(np.float64), requires_grad=True)
    double_inputs = torch.tensor(inputs.astype(np.float64), requires_grad=True)
    expected = reference(network, double, double_inputs)
    expected.backward(torch.tensor(weights.astype(np.float64)))
    assert_near(outputs, expected.detach().numpy())
    assert_near(gradient, double.grad.numpy())
    assert_near(input_gradient, double_inputs.grad.numpy())
    without = np.full_like(parameters, np.nan)
    native.backward(inputs, weights, without)
    np.testing.assert_array_equal(without, gradient)


@pytest.mark.parametrize("activation", slow_but({"relu", "gelu"}, ACTIVATIONS))
def test_gradients_of_every_activation(activation):
    for name in ("odd widths", "apart", "no hidden layer"):
        check(*made(name, activation), rows=97)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_every_structure(name):
    for activation in ("tanh", "gelu"):  # whose slope is found from the output, and from the input
        check(*made(name, activation), rows=100)


@pytest.mark.parametrize("activation", slow_but({"gelu"}, ("relu", "gelu")))
def test_gradients_through_layer_norms(activation):
    for name in NETWORKS:
        check(*made(name, activation, layer_norm=True), rows=100)


@pytest.mark.parametrize("rows", [1, 2, 95, 96, 97, 300])
def test_any_number_of_rows(rows):
    check(*made("odd widths", "tanh", seed=rows), rows=rows)


def test_every_activation_is_compared():
    assert TORCH.keys() == ACTIVATIONS.keys()


def test_no_rows():
    network, parameters, _ = made("odd widths", "tanh")
    native = NativeNetwork(network, parameters)
    gradient = np.full_like(parameters, np.nan)
    assert native.forward(np.zeros((0, 3), np.float32)).shape == (0, 4)
    native.backward(np.zeros((0, 3), np.float32), np.zeros((0, 4), np.float32), gradient)
    assert not gradient.any()


def test_rows_do_not_depend_on_their_neighbours():
    network, parameters, generator = made("wide", "tanh")
    native = NativeNetwork(network, parameters)
    inputs = generator.standard_normal((13, 5)).astype(np.float32)
    together = native.forward(inputs)
    apart = np.concatenate([native.forward(inputs[i : i + 1]) for i in range(13)])
    assert_near(apart, together, 1e-6)


def test_changed_parameters_count_after_refresh():
    network, parameters, generator = made("odd widths", "tanh")
    native = NativeNetwork(network, parameters)
    inputs = generator.standard_normal((3, 3)).astype(np.float32)
    before = native.forward(inputs)
    parameters *= 2
    np.testing.assert_array_equal(native.forward(inputs), before)
    native.refresh()
    expected = reference(network, torch.tensor(parameters.astype(np.float64)), torch.tensor(inputs.astype(np.float64)))
    assert_near(native.forward(inputs), expected.numpy())
    assert np.abs(expected.numpy() - before).max() > 0.1


def test_outputs_are_written_where_they_are_wanted():
    network, parameters, generator = made("odd widths", "tanh")
    native = NativeNetwork(network, parameters)
    inputs, own = generator.standard_normal((5, 3)).astype(np.float32), np.zeros((5, 4), np.float32)
    assert native.forward(inputs, own) is own
    np.testing.assert_array_equal(own, native.forward(inputs))


@pytest.mark.parametrize("activation", slow_but({"relu", "tanh", "gelu"}, ACTIVATIONS))
def test_nan_reaches_the_output(activation):
    network, parameters, _ = made("odd widths", activation)
    inputs = np.zeros((2, 3), np.float32)
    inputs[1, 2] = np.nan
    outputs = NativeNetwork(network, parameters).forward(inputs)
    assert np.isfinite(outputs[0]).all()
    assert np.isnan(outputs[1]).all()


def test_wrong_arrays_are_refused():
    network, parameters, _ = made("odd widths", "tanh")
    native = NativeNetwork(network, parameters)
    good, gradient = np.zeros((2, 3), np.float32), np.zeros_like(parameters)
    outputs = np.zeros((2, 4), np.float32)
    with pytest.raises(ValueError, match="parameters must be"):
        NativeNetwork(network, parameters[:-1])
    with pytest.raises(ValueError, match="parameters must be"):
        NativeNetwork(network, parameters.astype(np.float64))
    for wrong in (np.zeros((2, 4), np.float32), np.zeros((2, 3)), np.zeros((3, 2), np.float32).T):
        with pytest.raises(ValueError, match="inputs must be contiguous float32"):
            native.forward(wrong)
    with pytest.raises(ValueError, match="outputs must be"):
        native.forward(good, np.zeros((3, 4), np.float32))
    with pytest.raises(ValueError, match="output_gradient must be"):
        native.backward(good, np.zeros((2, 3), np.float32), gradient)
    with pytest.raises(ValueError, match="gradient must be float32"):
        native.backward(good, outputs, gradient[1:])
    with pytest.raises(ValueError, match="input_gradient must be"):
        native.backward(good, outputs, gradient, np.zeros((3, 3), np.float32))
