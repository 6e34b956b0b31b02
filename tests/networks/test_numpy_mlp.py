"""The multilayer perceptron in plain NumPy: its passes against torch autograd, and several of them in flight."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from velocirl.networks.activations import ACTIVATIONS
from velocirl.networks.encoding import encoding_for
from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.networks.numpy_mlp import NumpyMLP
from velocirl.networks.torch.activations import activation_module
from velocirl.networks.torch.mlp import TorchMLP
from velocirl.networks.torch.network import TorchNetwork

NETWORKS = {
    "no hidden layer": (7, (Chain((), (Segment(0, 3, 0.5), Segment(3, 1))),)),
    "odd widths": (3, (Chain((17, 3), (Segment(0, 3, 0.5), Segment(3, 1))),)),
    "apart": (20, (Chain((17, 8), (Segment(0, 3, 0.5),)), Chain((33,), (Segment(3, 1),)))),
    "free": (4, (Chain((8,), (Segment(0, 2, 0.5), Segment(2, 2, free=-0.5))), Chain((9, 5), (Segment(4, 1),)))),
    "crossed": (6, (Chain((), (Segment(2, 1),)), Chain((16, 16), (Segment(3, 20), Segment(0, 2))))),
}


def outputs_by_torch(mlp, parameters, inputs):
    """The same network in torch, in terms of one vector."""
    columns, last, activate = [None] * mlp.outputs, inputs, activation_module(mlp.activation)
    for place, layer in enumerate(mlp.plan.layers):
        width, size = int(layer["inputs"]), int(layer["outputs"])
        weights = parameters[int(layer["weights"]) :][: width * size].reshape(width, size)
        source = inputs if layer["first"] or width == 0 else last
        value = source[:, :width] @ weights + parameters[int(layer["biases"]) :][:size]
        if layer["normalised"]:
            gain, shift = (parameters[int(layer[name]) :][:size] for name in ("gains", "shifts"))
            value = torch.nn.functional.layer_norm(value, (size,), gain, shift)
        if layer["hidden"]:
            last = value = activate(value)
        for one in mlp.plan.segments[mlp.plan.segments["layer"] == place]:
            for k in range(one["size"]):
                columns[one["column"] + k] = value[:, one["offset"] + k]
    return torch.stack(columns, dim=1)


def begun(mlp, generator):
    network = NumpyMLP(mlp)
    assert not network.parameters.any()
    noise = 0.1 * generator.standard_normal(network.num_parameters).astype(np.float32)
    network.parameters_from(mlp.initial_parameters(generator) + noise)
    return network


def near(found, expected, tolerance=2e-6):
    scale = max(np.abs(expected).max(), 1e-3)
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() <= tolerance * scale


@pytest.mark.parametrize(
    ("name", "activation"), [*((name, "tanh") for name in NETWORKS), *(("apart", one) for one in ACTIVATIONS)]
)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_both_passes_are_those_of_autograd(name, activation, layer_norm):
    generator = np.random.default_rng(0)
    mlp = MLP(*NETWORKS[name], activation, layer_norm=layer_norm)
    network = begun(mlp, generator)
    inputs = generator.standard_normal((11, mlp.inputs)).astype(np.float32)
    weights = generator.standard_normal((11, mlp.outputs)).astype(np.float32)
    vector = torch.tensor(network.parameters.astype(np.float64), requires_grad=True)
    read = torch.tensor(inputs.astype(np.float64), requires_grad=True)
    expected = outputs_by_torch(mlp, vector, read)
    expected.backward(torch.tensor(weights.astype(np.float64)))
    with network.learning():
        outputs, state = network.forward(inputs)
    assert state is None
    near(outputs, expected.detach().numpy())
    network.gradient[:] = 7
    near(network.input_gradient(weights), read.grad.numpy())
    assert (network.gradient == 7).all()  # those of the parameters are not asked for
    for accumulate, times in ((False, 1), (True, 2), (False, 1)):
        network.backward(weights, accumulate)
        near(network.gradient, times * vector.grad.numpy())


MAKERS = {
    "numpy": lambda mlp: NumpyMLP(mlp),
    "torch": lambda mlp: TorchMLP(mlp),
    "module": lambda mlp: TorchNetwork(
        torch.nn.Sequential(torch.nn.Linear(3, 17), torch.nn.Tanh(), torch.nn.Linear(17, 4)),
        encoding_for(Box(-1, 1, (3,)), False),
        (4,),
    ),
}


def host(array):
    return torch.as_tensor(array).numpy().copy()


@pytest.mark.parametrize("kind", MAKERS)
def test_passes_under_several_names_are_kept_apart(kind):
    """As an update has them that asks one network twice: each backward pass finds what its own forward pass left."""
    generator = np.random.default_rng(1)
    mlp = MLP(3, (Chain((17,), (Segment(0, 4),)),), "tanh")
    network = MAKERS[kind](mlp)
    array = np.asarray if kind == "numpy" else torch.from_numpy
    vector = (0.3 * generator.standard_normal(network.num_parameters)).astype(np.float32)
    network.parameters_from(vector)
    inputs, weights = (array(generator.standard_normal((2, 5, size)).astype(np.float32)) for size in (3, 4))

    def alone(which):
        with network.reading_back():
            network.forward(inputs[which])
        network.backward(weights[which])
        gradient = host(network.gradient)
        with network.reading_back():
            network.forward(inputs[which])
        return gradient, host(network.input_gradient(weights[which]))

    expected = [alone(which) for which in range(2)]
    with network.learning("first"):
        network.forward(inputs[0])
    with network.reading_back("second"):
        network.forward(inputs[1])
    network.forward(array(generator.standard_normal((5, 3)).astype(np.float32)))  # somebody acts meanwhile
    network.backward(weights[0], slot="first")
    np.testing.assert_array_equal(host(network.gradient), expected[0][0])
    np.testing.assert_array_equal(host(network.input_gradient(weights[1], "second")), expected[1][1])
    np.testing.assert_array_equal(host(network.gradient), expected[0][0])
    with network.learning("second"):
        network.forward(inputs[1])
    network.backward(weights[1], accumulate=True, slot="second")
    np.testing.assert_allclose(host(network.gradient), expected[0][0] + expected[1][0], rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="pass before it, made within"):
        network.backward(weights[0], slot="third")


def test_a_twin_is_independent():
    generator = np.random.default_rng(2)
    network = begun(MLP(*NETWORKS["odd widths"], "tanh"), generator)
    twin, before = network.twin(), network.to_host()
    network.parameters[:] = 0
    np.testing.assert_array_equal(twin.to_host(), before)
    assert twin.buffers() == {}
