"""The benchmarks of networks and of the parts of an update: that everybody does the work that is measured."""

from contextlib import closing

import numpy as np
import pytest

from velocirl.bench.measuring import QUICK
from velocirl.bench.suite.training import network, update_parts
from velocirl.networks.mlp import MLP

torch = pytest.importorskip("torch")
LOSS_COLUMNS = ("action", "log_probability", "advantage", "target")


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_every_size_is_measured(direction):
    comparison = network.comparison(direction)
    assert len(comparison.without_peers().contestants) == 9
    assert len(comparison.peers) == 2
    assert all(claim.to == f"torch, {claim.of}" for claim in comparison.claims)


@pytest.mark.parametrize("direction", [pytest.param("forward", marks=pytest.mark.slow), "backward"])
def test_rows_go_through_the_network(direction):
    timed = network.velocirl_network(direction, 64, 64)
    timed.prepare(QUICK)
    assert timed.amount == 64
    assert 1e3 < timed.sample() < 1e9
    forward = 2 * (64 * 64 + 64 * 64 + 64 * 16)
    backward = 2 * forward - 2 * 64 * 64
    assert timed.cost.operations == (forward if direction == "forward" else forward + backward)


@pytest.mark.parametrize("direction", [pytest.param("forward", marks=pytest.mark.slow), "backward"])
def test_torch_does_the_same_on_one_core(direction):
    with closing(network.torch_network(direction, 64, 8)) as peer:
        assert peer.amount == 8
        assert 1 < peer.sample() < 1e8


@pytest.mark.usefixtures("one_torch_thread")
def test_torch_finds_a_gradient_each_time():
    from velocirl.bench.peers import torch_network

    sizes, kept = (3, 4, 2), []
    original = torch_network.layers_of
    torch_network.layers_of = lambda *given: kept.append(original(*given)) or kept[-1]
    try:
        call = torch_network.forward_and_backward(5, sizes, "cpu")
    finally:
        torch_network.layers_of = original
    call()
    first = [one.grad.clone() for one in kept[0].parameters()]
    call()
    for one, before in zip(kept[0].parameters(), first, strict=True):
        assert torch.equal(one.grad, before)  # not added up
    np.testing.assert_allclose(first[-1].numpy(), 5 * 0.1, rtol=1e-6)  # biases of the last layer


@pytest.mark.usefixtures("one_torch_thread")
def test_both_losses_have_the_same_gradient():
    from velocirl.bench.peers import torch_learning

    loss = update_parts.LossGradients(500)
    loss.call()
    outputs = torch.tensor(loss.outputs, requires_grad=True)
    action, *columns = (torch.tensor(loss.samples[name]) for name in LOSS_COLUMNS)
    torch_learning.ppo_loss(outputs, action[:, 0].long(), *columns).backward()
    np.testing.assert_allclose(loss.gradients, outputs.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("one_torch_thread")
def test_the_loss_of_torch_is_asked_for_its_gradient():
    from velocirl.bench.peers import torch_learning

    gradient = torch_learning.losing(10)()
    assert gradient.shape == (10, 3)
    assert (gradient != 0).any()


def test_the_sizes_of_an_optimiser_step():
    for width in (64, 256):
        sizes = network.sizes_of(width)
        assert update_parts.SIZES[f"a {width}x{width} network"] == MLP.of(sizes).num_parameters


@pytest.mark.parametrize("parameters", [16, 10_000_000])
def test_a_step_of_adam_moves_every_parameter(parameters):
    timed = update_parts.velocirl_descending(parameters)
    timed.call()
    vector = timed.call.args[0]
    np.testing.assert_allclose(vector, -1e-4, rtol=1e-3)  # the first step is as long as the learning rate
    assert timed.amount == parameters
    assert (timed.cost is None) == (parameters == 16)  # which a cache holds


@pytest.mark.usefixtures("one_torch_thread")
def test_torch_takes_a_step_of_adam():
    from velocirl.bench.peers import torch_learning

    step = torch_learning.descending(16)
    step()
    (parameter,) = step.__self__.param_groups[0]["params"]
    np.testing.assert_allclose(parameter.detach().numpy(), -1e-4, rtol=1e-3)
