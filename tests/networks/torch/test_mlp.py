"""The multilayer perceptron on torch against the native one: the same vector gives the same outputs and gradients."""

import numpy as np
import pytest
import torch
from choosing import slow_but
from hypothesis import given, settings
from hypothesis import strategies as st

from velocirl.networks.activations import ACTIVATIONS
from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.networks.native import NativeNetwork
from velocirl.networks.torch.activations import activation_module
from velocirl.networks.torch.conversion import from_torch, to_torch
from velocirl.networks.torch.mlp import TorchMLP

POLICY_AND_VALUE = (Segment(0, 3, 0.5), Segment(3, 1, 1.0))
NETWORKS = {
    "no hidden layer": (7, (Chain((), POLICY_AND_VALUE),)),
    "one unit": (1, (Chain((1,), (Segment(0, 1),)),)),
    "odd widths": (3, (Chain((17, 3), POLICY_AND_VALUE),)),
    "apart": (20, (Chain((17, 8), (Segment(0, 3, 0.5),)), Chain((33,), (Segment(3, 1),)))),
    "free": (4, (Chain((8,), (Segment(0, 2, 0.5), Segment(2, 2, free=-0.5))), Chain((9, 5), (Segment(4, 1),)))),
    "crossed": (6, (Chain((), (Segment(2, 1),)), Chain((64, 64, 64), (Segment(3, 20), Segment(0, 2))))),
    "free apart": (2, (Chain((3,), (Segment(1, 2), Segment(0, 1, free=1.5), Segment(3, 1, free=2.5))),)),
    "nothing hangs": (2, (Chain((3, 4), (Segment(0, 2, free=1.5),)), Chain((5,), (Segment(2, 2),)))),
}


def vector(network, seed=0):
    generator = np.random.default_rng(seed)
    parameters = network.initial_parameters(generator)
    return parameters + 0.1 * generator.standard_normal(parameters.shape).astype(np.float32)


def numbers(generator, *shape):
    return generator.standard_normal(shape).astype(np.float32)


def near(found, expected, tolerance):
    scale = max(np.abs(expected).max(), 1e-3)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * scale


def native_passes(network, parameters, inputs, output_gradient):
    native = NativeNetwork(network, parameters)
    gradient = np.full_like(parameters, np.nan)
    native.backward(inputs, output_gradient, gradient)
    return native.forward(inputs), gradient


def passes(torch_network, inputs, output_gradient, accumulate=False):
    with torch_network.learning():
        outputs, state = torch_network.forward(torch.from_numpy(inputs))
        assert state is None
        torch_network.backward(torch.from_numpy(output_gradient), accumulate)
    return outputs.numpy(), torch_network.gradient.numpy()


def check(network, rows, seed=0):
    generator = np.random.default_rng(seed)
    parameters = vector(network, seed)
    inputs, weights = numbers(generator, rows, network.inputs), numbers(generator, rows, network.outputs)
    ours = TorchMLP(network)
    ours.parameters_from(parameters)
    ours.gradient.fill_(torch.nan)
    outputs, gradient = passes(ours, inputs, weights)
    expected, expected_gradient = native_passes(network, parameters, inputs, weights)
    near(outputs, expected, 1e-6 if network.activation != "linear" else 3e-6)
    near(gradient, expected_gradient, 1e-4)


@pytest.mark.parametrize("activation", slow_but({"tanh"}, ACTIVATIONS))
def test_every_activation(activation):
    for name in ("odd widths", "apart"):
        inputs, chains = NETWORKS[name]
        check(MLP(inputs, chains, activation), rows=37)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_structure(name):
    inputs, chains = NETWORKS[name]
    for activation in ("tanh", "gelu"):  # whose slope is found from the output, and from the input
        check(MLP(inputs, chains, activation), rows=20)


@settings(max_examples=20)
@given(
    inputs=st.integers(1, 40),
    hidden=st.lists(st.lists(st.integers(1, 40), max_size=3), min_size=1, max_size=3),
    rows=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_any_sizes(inputs, hidden, rows, seed):
    chains = tuple(Chain(tuple(widths), (Segment(2 * place, 2),)) for place, widths in enumerate(hidden))
    check(MLP(inputs, chains, "tanh"), rows, seed)


def test_agents_together_are_agents_apart():
    network = MLP(*NETWORKS["free"], "silu")
    generator = np.random.default_rng(1)
    together = TorchMLP(network, seeds=3)
    together.parameters_from(np.stack([vector(network, seed) for seed in range(3)]))
    inputs, weights = numbers(generator, 3, 11, 4), numbers(generator, 3, 11, 5)
    outputs, gradient = passes(together, inputs, weights)
    assert outputs.shape == (3, 11, 5)
    first = gradient.copy()
    for agent in range(3):
        expected, expected_gradient = native_passes(network, vector(network, agent), inputs[agent], weights[agent])
        near(outputs[agent], expected, 1e-6)
        near(gradient[agent], expected_gradient, 1e-4)
    _, twice = passes(together, inputs, weights, accumulate=True)
    near(twice, 2 * first, 1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_added_up_only_on_request(name):
    network = MLP(*NETWORKS[name], "tanh")
    generator = np.random.default_rng(2)
    ours = TorchMLP(network)
    ours.parameters_from(vector(network))
    inputs, weights = numbers(generator, 6, network.inputs), numbers(generator, 6, network.outputs)
    once = passes(ours, inputs, weights)[1].copy()
    np.testing.assert_array_equal(passes(ours, inputs, weights)[1], once)
    near(passes(ours, inputs, weights, accumulate=True)[1], 2 * once, 1e-6)
    ours.clear()
    near(passes(ours, inputs, weights, accumulate=True)[1], once, 1e-6)


def test_acting_between_the_passes_changes_nothing():
    network = MLP(*NETWORKS["odd widths"], "tanh")
    generator = np.random.default_rng(3)
    ours = TorchMLP(network)
    ours.parameters_from(vector(network))
    inputs, weights = numbers(generator, 6, 3), numbers(generator, 6, 4)
    expected = passes(ours, inputs, weights)[1].copy()
    with ours.learning():
        ours.forward(torch.from_numpy(inputs))
    ours.forward(torch.from_numpy(numbers(generator, 6, 3)))
    ours.backward(torch.from_numpy(weights))
    np.testing.assert_array_equal(ours.gradient.numpy(), expected)


def test_memory_is_taken_once():
    """The passes write where the first ones of as many rows wrote: what a captured graph relies on."""
    network = MLP(*NETWORKS["crossed"], "gelu")
    ours = TorchMLP(network)
    generator = np.random.default_rng(4)
    addresses = set()
    for _ in range(3):
        with ours.learning():
            outputs, _ = ours.forward(torch.from_numpy(numbers(generator, 5, 6)))
            ours.backward(torch.from_numpy(numbers(generator, 5, 23)))
        addresses.add((outputs.data_ptr(), ours.parameters.data_ptr(), ours.gradient.data_ptr()))
    assert len(addresses) == 1
    assert len(ours._rooms) == 1


@pytest.mark.parametrize("seeds", [None, 2])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)])
def test_products_of_half_precision(dtype, tolerance, seeds):
    network = MLP(*NETWORKS["free"], "gelu")
    generator = np.random.default_rng(5)
    low, full = (TorchMLP(network, seeds=seeds, dtype=kind) for kind in (dtype, None))
    agents = () if seeds is None else (seeds,)
    for ours in (low, full):
        ours.parameters_from(np.broadcast_to(vector(network), (*agents, network.num_parameters)))
    inputs, weights = numbers(generator, *agents, 16, 4), numbers(generator, *agents, 16, 5)
    outputs, gradient = passes(low, inputs, weights)
    expected, expected_gradient = passes(full, inputs, weights)
    assert outputs.dtype == gradient.dtype == np.float32
    near(outputs, expected, tolerance)
    near(gradient, expected_gradient, tolerance)
    assert np.abs(outputs - expected).max() > 0  # it was another precision indeed
    single = gradient.copy()
    near(passes(low, inputs, weights, accumulate=True)[1], 2 * single, 1e-6)


def test_unrolling_is_a_row_for_each_step():
    network = MLP(*NETWORKS["apart"], "relu")
    ours = TorchMLP(network)
    ours.parameters_from(vector(network))
    inputs = torch.from_numpy(numbers(np.random.default_rng(6), 4, 3, 20))
    outputs = ours.unroll(inputs, torch.zeros(4, 3, dtype=torch.bool)).clone()
    np.testing.assert_array_equal(outputs.reshape(12, 4), ours.forward(inputs.reshape(12, 20))[0])


def test_a_twin_is_independent():
    network = MLP(*NETWORKS["odd widths"], "tanh")
    ours = TorchMLP(network)
    ours.parameters_from(vector(network))
    twin = ours.twin()
    ours.parameters.zero_()
    np.testing.assert_array_equal(twin.to_host(), vector(network))
    host = twin.to_host()
    host[:] = 0
    np.testing.assert_array_equal(twin.to_host(), vector(network))


def test_the_layout_covers_the_vector():
    network = MLP(*NETWORKS["free"], "tanh")
    layout = TorchMLP(network).layout()
    assert sum(int(np.prod(shape)) for _, shape in layout) == network.num_parameters
    assert layout[0] == ("layers.0.weights", (4, 8))


def test_what_does_not_fit_is_refused():
    network = MLP(*NETWORKS["odd widths"], "tanh")
    ours = TorchMLP(network, seeds=2)
    with pytest.raises(ValueError, match=r"inputs must be float32 \(2, 5, 3\), got torch.float32 \(5, 3\)"):
        ours.forward(torch.zeros(5, 3))
    with pytest.raises(ValueError, match=r"parameters must be float32 \(2, \d+\)"):
        ours.parameters_from(np.zeros(network.num_parameters, np.float32))
    with pytest.raises(RuntimeError, match="forward pass before it"):
        ours.backward(torch.zeros(2, 5, 4))
    with pytest.raises(ValueError, match="no buffers, got mean"):
        ours.load_buffers({"mean": np.zeros(1)})
    with pytest.raises(ValueError, match="at least 1, got 0"):
        TorchMLP(network, seeds=0)
    with pytest.raises(ValueError, match=r"got torch\.int64"):
        TorchMLP(network, dtype=torch.int64)


def test_without_torch_the_error_says_what_to_install(run_script, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import importlib, sys
sys.modules["torch"] = None
import velocirl
for name in ("mlp", "network", "modules", "checks", "activations", "memory", "conversion", "layer_norm"):
    try:
        importlib.import_module(f"velocirl.networks.torch.{name}")
    except ImportError as error:
        print(error)
""")
    lines = run_script(script).splitlines()
    assert len(lines) == 8
    assert all(line.endswith('needs torch: pip install "velocirl[torch]"') for line in lines)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_module_of_torch_gives_the_same_outputs(name):
    network = MLP(*NETWORKS[name], "elu")
    parameters = vector(network)
    inputs = numbers(np.random.default_rng(7), 9, network.inputs)
    module = to_torch(network, parameters)
    with torch.no_grad():
        near(module(torch.from_numpy(inputs)).numpy(), NativeNetwork(network, parameters).forward(inputs), 1e-6)
    plan, back = from_torch(module)
    assert plan is network
    np.testing.assert_array_equal(back, parameters)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_sequence_of_torch_becomes_a_native_network(activation):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 8), activation_module(activation), torch.nn.Linear(8, 5, bias=False)]
    module = torch.nn.Sequential(*layers, activation_module(activation), torch.nn.Linear(5, 2))
    network, parameters = from_torch(module)
    assert (network.inputs, network.outputs, network.activation) == (3, 2, activation)
    inputs = numbers(np.random.default_rng(8), 9, 3)
    with torch.no_grad():
        near(NativeNetwork(network, parameters).forward(inputs), module(torch.from_numpy(inputs)).numpy(), 1e-6)


def test_a_sequence_without_activations_is_linear():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    network, parameters = from_torch(module)
    assert network.activation == "linear"
    inputs = numbers(np.random.default_rng(9), 5, 3)
    with torch.no_grad():
        near(NativeNetwork(network, parameters).forward(inputs), module(torch.from_numpy(inputs)).numpy(), 2e-6)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (torch.nn.Linear(2, 2), "not Linear"),
        (
            torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()),
            r"layer 1 is Dropout.*which no native network",
        ),
        (torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU("tanh"), torch.nn.Linear(2, 2)), "layer 1 is GELU"),
        (torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LeakyReLU(0.2)), "layer 1 is LeakyReLU"),
        (torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), "the last layer must be"),
        (torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2)), "layer 0 is ReLU.*must follow an nn.Linear"),
        (
            torch.nn.Sequential(
                torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)
            ),
            "one activation for all layers, got relu, tanh",
        ),
    ],
)
def test_what_no_native_network_has_is_refused(module, message):
    with pytest.raises((TypeError, ValueError), match=message):
        from_torch(module)
    with pytest.raises(ValueError, match="must be 3 numbers"):
        to_torch(MLP.of([2, 1]), np.zeros(4, np.float32))
