"""The plan of a network: the size of everything, how parameters begin, and what is refused."""

from math import sqrt

import numpy as np
import pytest

from velocirl.networks.activations import ACTIVATIONS
from velocirl.networks.mlp import MLP, Chain, Segment

SHARED = MLP(5, (Chain((64, 32), (Segment(0, 3, 0.01), Segment(3, 1, 1.0))),), "tanh")
APART = MLP(5, (Chain((17,), (Segment(0, 2, 0.01), Segment(2, 2, free=-0.5))), Chain((9, 8), (Segment(4, 1),))), "relu")


def initial(network, seed=0):
    return network.initial_parameters(np.random.default_rng(seed))


def singular_values(weights):
    return np.linalg.svd(weights.astype(np.float64), compute_uv=False)


def test_sizes():
    assert SHARED.outputs == 4
    assert SHARED.num_parameters == 5 * 64 + 64 + 64 * 32 + 32 + 32 * 4 + 4
    assert APART.outputs == 5
    assert APART.num_parameters == (5 * 17 + 17 + 17 * 2 + 2) + 2 + (5 * 9 + 9 + 9 * 8 + 8 + 8 + 1)
    assert MLP.of([3, 2]).num_parameters == 3 * 2 + 2


@pytest.mark.parametrize("network", [SHARED, APART], ids=["shared", "apart"])
def test_layers_cover_the_flat_vector_once(network):
    parameters = np.zeros(network.num_parameters, np.float32)
    for weights, biases in network.layers(parameters):
        weights += 1
        biases += 1
    assert np.all(parameters == 1)


def test_orthogonal_beginning_with_the_gain_of_each_segment():
    (first, first_bias), (second, second_bias), (last, last_bias) = SHARED.layers(initial(SHARED))
    np.testing.assert_allclose(singular_values(first), 5 / 3, rtol=1e-5)
    np.testing.assert_allclose(singular_values(second), 5 / 3, rtol=1e-5)
    np.testing.assert_allclose(singular_values(last[:, :3]), 0.01, rtol=1e-5)
    np.testing.assert_allclose(singular_values(last[:, 3:]), 1.0, rtol=1e-5)
    assert not first_bias.any()
    assert not second_bias.any()
    assert not last_bias.any()


def test_free_segments_begin_at_their_value():
    layers = APART.layers(initial(APART))
    assert [weights.shape for weights, _ in layers] == [(5, 17), (17, 2), (0, 2), (5, 9), (9, 8), (8, 1)]
    assert layers[2][1].tolist() == [-0.5, -0.5]
    np.testing.assert_allclose(singular_values(layers[0][0]), sqrt(2), rtol=1e-5)
    np.testing.assert_allclose(singular_values(layers[1][0]), 0.01, rtol=1e-5)
    assert not any(biases.any() for place, (_, biases) in enumerate(layers) if place != 2)


def test_hidden_gain_is_that_of_the_activation():
    for name, activation in ACTIVATIONS.items():
        weights = MLP.of([6, 20, 1], name, "orthogonal").layers(initial(MLP.of([6, 20, 1], name, "orthogonal")))[0][0]
        np.testing.assert_allclose(singular_values(weights), activation.gain, rtol=1e-5)


def test_same_seed_same_parameters():
    assert initial(SHARED, 3).tobytes() == initial(SHARED, 3).tobytes()
    assert np.count_nonzero(initial(SHARED, 3) == initial(SHARED, 4)) == 64 + 32 + 4  # the biases


def test_layer_norms_change_no_weights():
    """They draw nothing, so that a seed means the same weights; gains begin at 1 and shifts at 0."""
    plain, normalised = (MLP.of([5, 7, 3, 2], "tanh", "orthogonal", layer_norm=norm) for norm in (False, True))
    assert normalised.num_parameters == plain.num_parameters + 2 * (7 + 3)
    pairs = zip(plain.layers(initial(plain, 1)), normalised.layers(initial(normalised, 1)), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert plain.norms(initial(plain, 1)) == [None] * 3
    first, second, last = normalised.norms(initial(normalised, 1))
    assert last is None
    for (gains, shifts), width in ((first, 7), (second, 3)):
        np.testing.assert_array_equal(gains, np.ones(width))
        np.testing.assert_array_equal(shifts, np.zeros(width))
    counted = np.zeros(normalised.num_parameters, np.float32)
    for part in (*normalised.layers(counted), *normalised.norms(counted)[:2]):
        part[0][...] += 1
        part[1][...] += 1
    np.testing.assert_array_equal(counted, 1)  # each number has one place


def test_places_do_not_overlap():
    """Everything that a block needs has room of its own, in every array of a workspace."""
    for network in (SHARED, APART, MLP.of([1, 1, 1], "gelu"), MLP.of([3, 9, 1], "gelu", layer_norm=True)):
        work, layers = network.workspace(), network.plan.layers
        rows = len(work.output)
        spans = {"values": [(0, rows * int(layers[0]["source_row"]))], "gradient": [], "packed": []}
        for layer in layers:
            size = rows * int(layer["row"])
            spans["values"] += [(int(place), int(place) + size) for place in {layer["place"], layer["before"]}]
            columns = int(layer["columns"])
            gradient, bias = int(layer["gradient"]), int(layer["bias_gradient"])
            spans["gradient"] += [(gradient, gradient + int(layer["inputs"]) * columns), (bias, bias + columns)]
            if layer["normalised"]:
                linear, inverse = int(layer["linear"]), int(layer["inverse_deviations"])
                spans["values"] += [(linear, linear + size), (inverse, inverse + rows)]
                for name in ("gain", "shift"):
                    place = int(layer[f"{name}_gradient"])
                    spans["gradient"].append((place, place + columns))
                    place = int(layer[f"packed_{name}s"])
                    spans["packed"].append((place, place + columns))
            packed = int(layer["packed"]), int(layer["packed_biases"]), int(layer["transposed"])
            panels = -(-columns // 16) * 16
            back = -(-int(layer["inputs"]) // 16) * 16
            sizes = int(layer["inputs"]) * panels, panels, int(layer["outputs"]) * back
            spans["packed"] += [(place, place + size) for place, size in zip(packed, sizes, strict=True)]
        for name, taken in spans.items():
            ends = 0
            for first, stop in sorted(span for span in taken if span[1] > span[0]):
                assert first >= ends, name
                ends = stop
            assert ends <= len(getattr(work, name))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MLP(0, (Chain((), (Segment(0, 1),)),)), "width must be a whole number of at least 1, got 0"),
        (lambda: MLP.of([3, 0, 1]), "width must be a whole number of at least 1, got 0"),
        (lambda: MLP.of([3, 2.5, 1]), "got 2.5"),
        (lambda: MLP.of([3]), "sizes must have an input and an output"),
        (lambda: MLP.of([3, 4, 1], "tahn"), "did you mean 'tanh'"),
        (lambda: MLP.of([3, 4, 1], initialiser="orthogonl"), "did you mean 'orthogonal'"),
        (lambda: MLP(2, (Chain((), (Segment(0, 2), Segment(3, 1))),)), "without a gap"),
        (lambda: MLP(2, (Chain((), (Segment(0, 2), Segment(1, 1))),)), "without a gap"),
        (lambda: MLP(2, (Chain((), (Segment(1, 2),)),)), "without a gap"),
    ],
)
def test_impossible_networks_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
