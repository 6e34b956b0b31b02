"""Layer norms on torch: the passes that are written out against NumPy's, and modules that anyone can read."""

import numpy as np
import pytest
import torch

from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.networks.numpy_mlp import NumpyMLP
from velocirl.networks.torch.conversion import from_torch, to_torch
from velocirl.networks.torch.mlp import TorchMLP

NETWORKS = {
    "one unit": (1, (Chain((1,), (Segment(0, 1),)),)),
    "no hidden layer": (3, (Chain((), (Segment(0, 2),)),)),
    "odd widths": (3, (Chain((17, 3), (Segment(0, 3, 0.5), Segment(3, 1))),)),
    "free": (4, (Chain((8,), (Segment(0, 2, 0.5), Segment(2, 2, free=-0.5))), Chain((9, 5), (Segment(4, 1),)))),
    "nothing hangs": (2, (Chain((3, 4), (Segment(0, 2, free=1.5),)), Chain((5,), (Segment(2, 2),)))),
}


def made(name, activation="relu"):
    return MLP(*NETWORKS[name], activation, layer_norm=True)


def vector(network, seed=0):
    generator = np.random.default_rng(seed)
    parameters = network.initial_parameters(generator)
    return parameters + 0.1 * generator.standard_normal(parameters.shape).astype(np.float32)


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(found, expected, tolerance=1e-5, least=1e-3):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), least)


def host(array):
    return torch.as_tensor(array).cpu().float().numpy().copy()


def through(network, array, inputs, weights):
    """Outputs, gradient, twice that, and the gradient of the inputs."""
    with network.learning():
        outputs = network.forward(array(inputs))[0]
    network.backward(array(weights))
    once = host(network.gradient)
    network.backward(array(weights), accumulate=True)
    return host(outputs), once, host(network.gradient), host(network.input_gradient(array(weights)))


def expected_of(network, parameters, inputs, weights):
    plain = NumpyMLP(network)
    plain.parameters_from(parameters)
    return through(plain, np.asarray, inputs, weights)


@pytest.mark.parametrize("activation", ["relu", "gelu", "linear"])
@pytest.mark.parametrize("name", NETWORKS)
def test_both_passes(name, activation):
    network = made(name, activation)
    inputs, weights = numbers(1, 13, network.inputs), numbers(2, 13, network.outputs)
    ours = TorchMLP(network)
    ours.parameters_from(vector(network))
    ours.gradient.fill_(torch.nan)
    for found, wanted in zip(
        through(ours, torch.from_numpy, inputs, weights),
        expected_of(network, vector(network), inputs, weights),
        strict=True,
    ):
        # Of rows of one number, torch's gradient is what rounding leaves of zero, times 1 / sqrt(eps).
        near(found, wanted, least=100.0 if name == "one unit" else 1e-3)


def test_agents_together_are_agents_apart():
    network = made("free", "silu")
    together = TorchMLP(network, seeds=3)
    together.parameters_from(np.stack([vector(network, seed) for seed in range(3)]))
    inputs, weights = numbers(1, 3, 11, 4), numbers(2, 3, 11, 5)
    found = through(together, torch.from_numpy, inputs, weights)
    for agent in range(3):
        expected = expected_of(network, vector(network, agent), inputs[agent], weights[agent])
        for one, wanted in zip(found, expected, strict=True):
            near(one[agent], wanted)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA device")
@pytest.mark.parametrize("seeds", [None, 3])
def test_a_gpu_gives_the_same(seeds):
    network = made("free", "gelu")
    agents = () if seeds is None else (seeds,)
    inputs, weights = numbers(1, *agents, 300, 4), numbers(2, *agents, 300, 5)
    found = []
    for device in ("cpu", "cuda"):
        ours = TorchMLP(network, device, seeds=seeds)
        ours.parameters_from(np.broadcast_to(vector(network), (*agents, network.num_parameters)))
        found.append(through(ours, lambda x, device=device: torch.from_numpy(x).to(device), inputs, weights))
    for one, wanted in zip(*found, strict=True):
        near(one, wanted, 1e-4)


@pytest.mark.parametrize("seeds", [None, 2])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)])
def test_products_of_half_precision(dtype, tolerance, seeds):
    network = made("free", "gelu")
    agents = () if seeds is None else (seeds,)
    inputs, weights = numbers(1, *agents, 16, 4), numbers(2, *agents, 16, 5)
    found = []
    for kind in (dtype, None):
        ours = TorchMLP(network, seeds=seeds, dtype=kind)
        ours.parameters_from(np.broadcast_to(vector(network), (*agents, network.num_parameters)))
        found.append(through(ours, torch.from_numpy, inputs, weights))
    for low, full in zip(*found, strict=True):
        near(low, full, tolerance)


def test_the_layout_covers_the_vector():
    network = made("free")
    layout = TorchMLP(network).layout()
    assert layout[:4] == [
        ("layers.0.weights", (4, 8)), ("layers.0.biases", (8,)), ("layers.0.gains", (8,)), ("layers.0.shifts", (8,)),
    ]  # fmt: skip
    assert sum(int(np.prod(shape)) for _, shape in layout) == network.num_parameters


@pytest.mark.parametrize("name", NETWORKS)
def test_there_and_back_as_a_module(name):
    network = made(name)
    inputs, parameters = numbers(1, 9, network.inputs), vector(network)
    module = to_torch(network, parameters)
    plain = NumpyMLP(network)
    plain.parameters_from(parameters)
    with torch.no_grad():
        near(module(torch.from_numpy(inputs)).numpy(), plain.forward(inputs)[0], 2e-6)
    plan, back = from_torch(module)
    assert plan is network
    np.testing.assert_array_equal(back, parameters)


def test_a_sequence_becomes_a_native_network():
    nn = torch.nn
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(3, 8), nn.LayerNorm(8), nn.ReLU(),
        nn.Linear(8, 5, bias=False), nn.LayerNorm(5, elementwise_affine=False), nn.ReLU(),
        nn.Linear(5, 2),
    )  # fmt: skip
    with torch.no_grad():
        module[1].weight.normal_()
        module[1].bias.normal_()
    network, parameters = from_torch(module)
    assert network.layer_norm
    plain = NumpyMLP(network)
    plain.parameters_from(parameters)
    inputs = numbers(1, 9, 3)
    with torch.no_grad():
        near(plain.forward(inputs)[0], module(torch.from_numpy(inputs)).numpy(), 2e-6)


def _sequence(*layers):
    return torch.nn.Sequential(*layers, torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (_sequence(torch.nn.LayerNorm(2)), "layer 0 is LayerNorm.*between an nn.Linear and its activation"),
        (_sequence(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.LayerNorm(2)), "layer 2 is LayerNorm.*between"),
        (_sequence(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2, 1e-3)), "with eps=1e-05"),
        (_sequence(torch.nn.Linear(4, 2), torch.nn.LayerNorm(1)), "all 2 outputs"),
        (torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2)), "outputs are not normalised"),
        (
            _sequence(
                torch.nn.Linear(2, 2), torch.nn.LayerNorm(2), torch.nn.ReLU(), torch.nn.Linear(2, 2), torch.nn.ReLU()
            ),
            "each of its hidden layers, or after none",
        ),
    ],
)
def test_norms_that_no_native_network_has_are_refused(module, message):
    with pytest.raises(ValueError, match=message):
        from_torch(module)
