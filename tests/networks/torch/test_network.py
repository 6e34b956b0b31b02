"""A module at work: its parameters in one vector, gradients against autograd, several kinds of outputs, and copies."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from velocirl.networks.declared import Columns
from velocirl.networks.encoding import encoding_for
from velocirl.networks.mlp import MLP
from velocirl.networks.specs import parse_network
from velocirl.networks.torch.mlp import TorchMLP
from velocirl.networks.torch.modules import build_module
from velocirl.networks.torch.network import TorchNetwork

GROUPS, WIDTHS = [[Columns(3, 0.01)], [Columns(1)]], (3, 1)  # a policy and a value
FLAT = encoding_for(Box(-1, 1, (6,)), False)
PARTS = encoding_for(Dict({"camera": Box(0, 1, (2, 4)), "gear": Discrete(4)}), False)


class Pair(nn.Module):
    """A policy and a value apart, the value with or without its own dimension."""

    def __init__(self, squeezed=True):
        super().__init__()
        self.policy, self.value, self.squeezed = nn.Linear(6, 3), nn.Linear(6, 1), squeezed

    def forward(self, observation):
        value = self.value(observation)
        return self.policy(observation), value[:, 0] if self.squeezed else value


class Tied(nn.Module):
    """One matrix used twice, one that is frozen, and a buffer."""

    def __init__(self):
        super().__init__()
        self.once = nn.Linear(6, 6)
        self.again = nn.Linear(6, 6)
        self.again.weight = self.once.weight
        self.frozen = nn.Linear(6, 4)
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("passing", torch.zeros(1), persistent=False)

    def forward(self, observation):
        return self.frozen(self.again(self.once(observation))) * self.scale


class Counting(nn.Module):
    """Remembers the sum of what it saw; without an unroll of its own."""

    state_size = 6

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, observation, state):
        state = state + observation
        return self.layer(state), state


def made(spec, encoding=FLAT, device="cpu", **options):
    torch.manual_seed(0)
    module = build_module(
        parse_network(spec), encoding, GROUPS, activation="tanh", initialiser="orthogonal",
        generator=np.random.default_rng(0),
    )  # fmt: skip
    return TorchNetwork(module, encoding, WIDTHS, device, **options)


def autograd(network, outputs_of, weights):
    """The gradient as autograd finds it for a module of its own."""
    module = network.twin().module
    module.zero_grad(set_to_none=True)
    (outputs_of(module) * weights).sum().backward()
    return torch.cat([one.grad.reshape(-1) for one in module.parameters() if one.requires_grad])


def test_parameters_are_views_of_one_vector():
    network = made("mlp(8)")
    assert network.num_parameters == sum(one.numel() for one in network.module.parameters())
    assert sum(int(np.prod(shape)) for _, shape in network.layout()) == network.num_parameters
    assert network.layout()[0] == ("body.encoders.0.1.weight", (8, 6))
    first = next(network.module.parameters())
    network.parameters.fill_(0.25)
    assert (first == 0.25).all()
    assert network.to_host().tolist() == [0.25] * network.num_parameters
    with pytest.raises(ValueError, match="parameters must be float32"):
        network.parameters_from(np.zeros(3, np.float32))


def test_gradients_are_those_of_autograd_and_stay_where_they_are():
    network = made("mlp(8)")
    inputs, weights = torch.randn(5, 6), torch.randn(5, 4)
    expected = autograd(network, lambda module: module(inputs), weights)
    addresses = [one.grad.data_ptr() for one in network.module.parameters()]
    network.gradient.fill_(7)
    for accumulate, times in ((False, 1), (True, 2), (False, 1)):
        with network.learning():
            outputs, state = network.forward(inputs)
            network.backward(weights, accumulate)
        torch.testing.assert_close(network.gradient, times * expected)
    assert state is None
    assert not outputs.requires_grad
    assert [one.grad.data_ptr() for one in network.module.parameters()] == addresses
    network.clear()
    assert not network.gradient.any()


def test_backward_needs_a_pass_that_learns():
    network = made("mlp(8)")
    network.forward(torch.zeros(2, 6))
    with pytest.raises(RuntimeError, match="made within"):
        network.backward(torch.zeros(2, 4))


def test_acting_between_the_passes_changes_nothing():
    network = made("mlp(8)")
    inputs, weights = torch.randn(5, 6), torch.randn(5, 4)
    expected = autograd(network, lambda module: module(inputs), weights)
    with network.learning():
        network.forward(inputs)
    network.forward(torch.randn(5, 6))
    network.backward(weights)
    torch.testing.assert_close(network.gradient, expected)


@pytest.mark.parametrize("squeezed", [False, True])
def test_a_policy_and_a_value_are_joined(squeezed):
    network = TorchNetwork(Pair(squeezed), FLAT, WIDTHS)
    inputs = torch.randn(5, 6)
    outputs, _ = network.forward(inputs)
    module = network.module
    assert torch.equal(outputs, torch.cat([module.policy(inputs), module.value(inputs)], dim=1))


def test_parts_are_given_by_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, observation):
            assert {name: part.shape for name, part in observation.items()} == {"camera": (5, 2, 4), "gear": (5, 4)}
            return self.layer(observation["camera"][:, 1] + observation["gear"])

    network = TorchNetwork(Named(), PARTS, WIDTHS)
    inputs = torch.randn(5, 12)
    outputs, _ = network.forward(inputs)
    torch.testing.assert_close(outputs, network.module.layer(inputs[:, 4:8] + inputs[:, 8:]))


def test_tied_frozen_and_kept():
    network = TorchNetwork(Tied(), FLAT, WIDTHS)
    assert [name for name, _ in network.layout()] == ["once.weight", "once.bias", "again.bias"]
    assert network.num_parameters == 36 + 6 + 6
    buffers = network.buffers()
    assert sorted(buffers) == ["frozen.bias", "frozen.weight", "scale"]
    inputs, weights = torch.randn(5, 6), torch.randn(5, 4)
    with network.learning():
        network.forward(inputs)
        network.backward(weights)
    torch.testing.assert_close(network.gradient, autograd(network, lambda module: module(inputs), weights))
    before, _ = network.forward(inputs)
    network.load_buffers({**buffers, "scale": 3 * buffers["scale"]})
    torch.testing.assert_close(network.forward(inputs)[0], 3 * before)
    assert (buffers["scale"] == 2).all()
    with pytest.raises(ValueError, match=r"buffers are .* got"):
        network.load_buffers({"scale": buffers["scale"]})
    with pytest.raises(ValueError, match=r"buffer scale has shape \(4,\), got \(5,\)"):
        network.load_buffers({**buffers, "scale": np.zeros(5, np.float32)})


def test_other_precisions_become_single():
    network = TorchNetwork(Pair().double(), FLAT, WIDTHS)
    assert {one.dtype for one in network.module.parameters()} == {torch.float32}
    assert network.forward(torch.zeros(2, 6))[0].dtype == torch.float32


def test_parameters_that_cannot_be_learnt_are_refused():
    module = Pair()
    module.counts = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)
    with pytest.raises(ValueError, match=r"parameter counts is torch\.int64"):
        TorchNetwork(module, FLAT, WIDTHS)
    module.counts = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"parameter counts is torch\.complex64"):
        TorchNetwork(module, FLAT, WIDTHS)
    with pytest.raises(ValueError, match=r"parameter weight has no size yet"):
        TorchNetwork(nn.LazyLinear(4), FLAT, WIDTHS)
    module = Pair()
    module.state_size = 1.5
    with pytest.raises(ValueError, match="state_size must be a whole number"):
        TorchNetwork(module, FLAT, WIDTHS)
    with pytest.raises(ValueError, match="autocast must be"):
        TorchNetwork(Pair(), FLAT, WIDTHS, autocast=torch.float64)


def test_a_twin_is_independent():
    network = made("mlp(8)")
    inputs = torch.randn(5, 6)
    before, _ = network.forward(inputs)
    twin = network.twin()
    network.parameters.zero_()
    torch.testing.assert_close(twin.forward(inputs)[0], before)
    assert not network.forward(inputs)[0].any()
    with twin.learning():
        twin.forward(inputs)
        twin.backward(torch.ones(5, 4))
    assert twin.gradient.any()
    assert not network.gradient.any()


def test_parameters_travel_by_the_host():
    network, other = made("mlp(8)"), made("mlp(8)")
    other.parameters.zero_()
    other.parameters_from(network.to_host())
    inputs = torch.randn(5, 6)
    assert torch.equal(other.forward(inputs)[0], network.forward(inputs)[0])


@pytest.mark.parametrize("make", [lambda: made("mlp(8) lstm(4)"), lambda: TorchNetwork(Counting(), FLAT, WIDTHS)])
def test_unrolling_is_stepping_with_resets(make):
    network = make()
    inputs, starts = torch.randn(5, 3, 6), torch.rand(5, 3) < 0.4
    state = torch.randn(3, network.state_size)
    weights = torch.randn(5, 3, 4)
    with network.learning():
        unrolled = network.unroll(inputs, starts, state)
        network.backward(weights)

    def stepwise(module):
        remembered, outputs = state, []
        for step in range(5):
            output, remembered = module(inputs[step], remembered * ~starts[step][:, None])
            outputs.append(output)
        return torch.stack(outputs)

    torch.testing.assert_close(unrolled, stepwise(network.module).detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(network.gradient, autograd(network, stepwise, weights), atol=1e-5, rtol=1e-4)
    first, following = network.forward(inputs[0], state)
    assert following.shape == (3, network.state_size)
    assert not following.requires_grad
    from_nothing, _ = network.forward(inputs[0])
    zeros = torch.zeros(3, network.state_size)
    assert torch.equal(from_nothing, network.forward(inputs[0], zeros)[0])
    assert not torch.equal(from_nothing, first)


def test_unrolling_without_a_state():
    network = made("mlp(8)")
    inputs = torch.randn(5, 3, 6)
    unrolled = network.unroll(inputs, torch.zeros(5, 3, dtype=torch.bool))
    torch.testing.assert_close(unrolled, network.module(inputs.reshape(15, 6)).detach().reshape(5, 3, 4))


@pytest.mark.parametrize("spec", ["mlp(32)", "mlp(32) lstm(8)"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_within_and_single_without(spec, dtype):
    low, full = made(spec, autocast=dtype), made(spec)
    inputs, starts = torch.randn(3, 5, 6), torch.zeros(3, 5, dtype=torch.bool)
    results = []
    for network in (low, full):
        with network.learning():
            outputs = network.unroll(inputs, starts)
            network.backward(torch.ones_like(outputs))
        assert outputs.dtype == network.gradient.dtype == torch.float32
        results.append((outputs, network.gradient))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, atol=0.03 * float(expected.abs().max()), rtol=0)
        assert not torch.equal(found, expected)
    assert low.twin().autocast == dtype


@pytest.mark.parametrize("spec", ["mlp(8)", "mlp(8) gru(4)"])
def test_compiled_modules_give_the_same(spec):
    network = made(spec)
    inputs, starts, weights = torch.randn(2, 3, 6), torch.zeros(2, 3, dtype=torch.bool), torch.randn(2, 3, 4)
    with network.learning():
        expected = network.unroll(inputs, starts)
        network.backward(weights)
    gradient = network.gradient.clone()
    calls = []

    def backend(graph, _):
        calls.append(graph)
        return graph

    for compiled in (network, network.twin()):
        compiled.compile(backend=backend)
        with compiled.learning():
            found = compiled.unroll(inputs, starts)
            compiled.backward(weights)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(compiled.gradient, gradient)
    assert calls


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA device")
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # autograd's thread, the first time
@pytest.mark.parametrize(
    "kind", ["mlp", "mlp bfloat16", "mlp norms", "mlp norms bfloat16", "module", "module bfloat16", "recurrent"]
)
def test_both_passes_can_be_captured_as_a_graph(kind):
    def make(device):
        dtype = torch.bfloat16 if kind.endswith("bfloat16") else None
        if kind.startswith("mlp"):
            network = TorchMLP(MLP.of([6, 8, 4], "tanh", layer_norm="norms" in kind), device, dtype=dtype)
            network.parameters_from(network.mlp.initial_parameters(np.random.default_rng(0)))
            return network
        return made("mlp(8) lstm(4)" if kind == "recurrent" else "mlp(8)", device=device, autocast=dtype)

    def both(network, inputs, weights):
        with network.learning():
            outputs = network.unroll(inputs, torch.zeros(inputs.shape[:2], dtype=torch.bool, device=inputs.device))
            network.backward(weights)
        return outputs

    network, reference = make("cuda"), make("cpu")
    inputs, weights = torch.zeros(3, 5, 6, device="cuda"), torch.zeros(3, 5, 4, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            both(network, inputs, weights)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = both(network, inputs, weights)
    for _ in range(2):
        inputs.copy_(torch.randn(3, 5, 6))
        weights.copy_(torch.randn(3, 5, 4))
        graph.replay()
        expected = both(reference, inputs.cpu(), weights.cpu())
        tolerance = 0.03 if kind.endswith("bfloat16") else 1e-4
        for found, wanted in ((outputs, expected), (network.gradient, reference.gradient)):
            torch.testing.assert_close(found.cpu(), wanted, atol=tolerance * float(wanted.abs().max()), rtol=0)
