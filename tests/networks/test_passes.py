"""Laying parameters out for the products: panels of each matrix and of its transpose, by one thread or by several."""

import numpy as np
import pytest

from velocirl.engine.compiler.arithmetic.products import PANEL
from velocirl.engine.compiler.compiling import compile_loop, learning_translator
from velocirl.networks.activations import activation_from
from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.networks.native import add_passes
from velocirl.networks.passes import pack_part, passes

NETWORKS = {
    "whole panels": MLP.of([32, 64, 16]),
    "odd widths": MLP.of([5, 37, 19, 3]),
    "one of each": MLP.of([1, 1, 1]),
    "two chains": MLP(7, (Chain((20,), (Segment(0, 1),)), Chain((18, 33), (Segment(1, 1),)))),
    "free numbers": MLP(4, (Chain((17,), (Segment(0, 2), Segment(2, 2, free=0.5))),)),
    "layer norms": MLP.of([3, 19, 5, 2], layer_norm=True),
}


def panels(matrix):
    """By the definition: sixteen columns at a time, zeros where there are none."""
    rows, columns = matrix.shape
    count = -(-columns // PANEL)
    wide = np.zeros((rows, count * PANEL), np.float32)
    wide[:, :columns] = matrix
    return wide.reshape(rows, count, PANEL).transpose(1, 0, 2).reshape(-1)


def expected(network, parameters, packed, *, both):
    views = zip(network.plan.layers, network.layers(parameters), network.norms(parameters), strict=True)
    for layer, (weights, biases), norm in views:
        parts = {"packed": weights, "packed_biases": biases[None]}
        if norm is not None:
            parts |= {"packed_gains": norm[0][None], "packed_shifts": norm[1][None]}
        if both:
            parts["transposed"] = weights.T
        for name, matrix in parts.items():
            numbers = panels(matrix)
            packed[layer[name] : layer[name] + len(numbers)] = numbers
    return packed


def pack_all(plan, parameters, packed, threads, both):
    for thread in range(threads):
        pack_part(plan, parameters, packed, thread, threads, both)


@pytest.mark.parametrize("both", [True, False], ids=["both", "forward"])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", NETWORKS)
def test_panels_by_their_definition(name, threads, both):
    network = NETWORKS[name]
    parameters = np.random.default_rng(0).normal(size=network.num_parameters).astype(np.float32)
    packed = np.full_like(network.workspace().packed, 7)
    translator = learning_translator("network")
    add_passes(translator, passes(activation_from("relu")))
    arguments = network.plan, parameters, packed, threads, both
    compile_loop(pack_all, arguments, translator, before=lambda: None)(*arguments)
    np.testing.assert_array_equal(packed, expected(network, parameters, np.full_like(packed, 7), both=both))
