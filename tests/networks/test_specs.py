"""Networks as text: what is read, what is written again, and what is refused with which advice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from velocirl.networks.encoding import Part
from velocirl.networks.specs import Convolution, Convolutional, Dense, NetworkSpec, Recurrent, parse_network

FLAT = (Part("", 0, 4, (4,)),)
IMAGE = (Part("", 0, 75, (5, 5, 3)),)
PARTS = (Part("camera", 0, 75, (5, 5, 3)), Part("speed", 75, 1, (1,)))


def images(*layers, **more):
    return Convolutional(tuple(Convolution(*layer) for layer in layers), **more)


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("mlp(64, 64)", (Dense((64, 64)),)),
        (" MLP( 64 )  gru(8) ", (Dense((64,)), Recurrent("gru", 8))),
        ("cnn(16, 32)", (images((16, 3, 1, 1), (32, 3, 1, 1)),)),
        ("cnn(16, kernel=5, stride=2, pool=True)", (images((16, 5, 2, 2), pool=True),)),
        ("cnn(32x8s4, 64x3, 8x3p1)", (images((32, 8, 4, 0), (64, 3, 1, 0), (8, 3, 1, 1)),)),
        ("cnn(16x3s2, 8, norm=batch)", (images((16, 3, 2, 0), (8, 3, 1, 1), norm="batch"),)),
        ("mlp(8, 4, norm=layer)", (Dense((8, 4), "layer"),)),
        ("nature", (images((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)), Dense((512,)))),
        ("minatar lstm(8)", (images((16, 3, 1, 0)), Dense((128,)), Recurrent("lstm", 8))),
        (
            "cnn(32, 64) mlp(256) lstm(128, layers=2)",
            (images((32, 3, 1, 1), (64, 3, 1, 1)), Dense((256,)), Recurrent("lstm", 128, 2)),
        ),
        ("mlp(8) mlp(4)", (Dense((8,)), Dense((4,)))),
    ],
)
def test_texts(text, stages):
    spec = parse_network(text)
    assert spec == NetworkSpec(stages)
    assert parse_network(spec.describe()) == spec


def test_a_dict_has_encoders_and_what_follows():
    spec = parse_network({"camera": "cnn(16, 32) mlp(8)", "speed": "mlp(32)", "then": "mlp(128) lstm(64)"})
    assert spec.encoders == (
        ("camera", (images((16, 3, 1, 1), (32, 3, 1, 1)), Dense((8,)))),
        ("speed", (Dense((32,)),)),
    )
    assert spec.stages == (Dense((128,)), Recurrent("lstm", 64))
    assert spec.recurrent == Recurrent("lstm", 64)
    assert parse_network(spec.describe()) == spec
    assert parse_network({"camera": "cnn(4)"}).recurrent is None
    spec.check(PARTS)


sizes = st.lists(st.integers(1, 999), min_size=1, max_size=4).map(tuple)
norms = st.sampled_from([None, "batch", "layer"])
dense = st.lists(st.builds(Dense, sizes, norms), max_size=2).map(tuple)
layer = st.builds(Convolution, st.integers(1, 99), st.integers(4, 9), st.integers(1, 4), st.integers(0, 3))
alike = st.builds(
    lambda counts, kernel, stride: tuple(Convolution(count, kernel, stride, kernel // 2) for count in counts),
    sizes, st.integers(1, 9), st.integers(1, 4),
)  # fmt: skip
layers = st.one_of(alike, st.lists(layer, min_size=1, max_size=4).map(tuple))
convolutions = st.builds(Convolutional, layers, st.booleans(), norms)
memories = st.builds(Recurrent, st.sampled_from(["lstm", "gru"]), st.integers(1, 999), st.integers(1, 3))


@given(st.one_of(convolutions.map(lambda one: (one,)), st.just(())), dense, st.one_of(memories, st.none()))
def test_what_is_described_is_read_again(images, widths, memory):
    stages = (*images, *widths, *([] if memory is None else [memory]))
    if stages:
        spec = NetworkSpec(stages)
        assert parse_network(spec.describe()) == spec
    spec = NetworkSpec((*widths, *([] if memory is None else [memory])), (("x", (*images, *widths) or (Dense((1,)),)),))
    assert parse_network(spec.describe()) == spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mlpp(64)", "no stage 'mlpp' of a network: did you mean 'mlp'?"),
        ("mlp", r"mlp needs a size, such as mlp\(64\)"),
        ("", "cannot read the network '': write stages such as mlp"),
        ("mlp(64) + lstm(3)", r"at '\+ lstm\(3\)'"),
        ("mlp()", r"mlp needs a size, such as mlp\(64\)"),
        ("mlp(0)", "mlp must be a whole number of at least 1, not '0'"),
        ("mlp(6.5)", "not '6.5'"),
        ("mlp(8, -1)", "not '-1'"),
        ("mlp(8, width=3)", "mlp has no argument 'width'"),
        ("cnn(8, kernal=3)", "cnn has no argument 'kernal': did you mean 'kernel'?"),
        ("cnn(8, kernel=3, kernel=5)", "kernel is given twice"),
        ("cnn(8, kernel=3, 4)", "'4' follows a named argument"),
        ("cnn(8, norm=group)", "cnn: norm must be batch or layer, not 'group'"),
        ("lstm(8, norm=layer)", "lstm has no argument 'norm'"),
        ("cnn(8y3)", "cnn must be a whole number of at least 1 or a layer such as 32x8s4, not '8y3'"),
        ("cnn(8x0)", "cnn: 8x0 must be a whole number of at least 1, not '0'"),
        ("cnn(8x3s0)", "cnn: 8x3s0 must be a whole number of at least 1, not '0'"),
        ("cnn(8x3p3)", "cnn: 8x3p3 pads by 3"),
        ("natur", "there is no stage 'natur' of a network: did you mean 'nature'"),
        ("nature(32)", r"nature is cnn\(32x8s4, 64x4s2, 64x3s1\) mlp\(512\), and takes no arguments"),
        ("cnn(8, pool=2)", "pool must be true or false, not '2'"),
        ("cnn(8, stride=0)", "cnn: stride must be a whole number of at least 1"),
        ("mlp(8) cnn(8)", "a cnn reads an image and must come first"),
        ("lstm(8) mlp(8)", "at most one of lstm and gru, as the last stage"),
        ("lstm(8) gru(8)", "at most one of lstm and gru"),
        ("lstm(8, 8)", r"lstm takes one size, got 8, 8: for several layers write lstm\(8, layers=2\)"),
        ({"camera": "lstm(8)"}, 'put it into "then"'),
        ({"then": "cnn(8)"}, "after the encoders there is none"),
    ],
)
def test_what_cannot_be_read_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        parse_network(spec)


@pytest.mark.parametrize("spec", [64, ["mlp(64)"], {"camera": 3}, None])
def test_other_types_are_refused(spec):
    with pytest.raises(TypeError, match="a network is a text such as"):
        parse_network(spec)


@pytest.mark.parametrize(
    ("spec", "parts", "message"),
    [
        ("cnn(8)", FLAT, r"a cnn reads images of two or .*, and the observation has the shape \(4,\)"),
        ("cnn(8)", PARTS, "has the parts camera, speed: say which one a cnn reads"),
        ({"speed": "cnn(8)"}, PARTS, r"the observation 'speed' has the shape \(1,\): use mlp"),
        ({"sped": "mlp(8)"}, PARTS, "no part 'sped': did you mean 'speed'?"),
        ({"camera": "mlp(8)"}, IMAGE, "no parts that encoders could be for"),
        ("mlp(8)", (Part("then", 0, 1, (1,)), Part("x", 1, 1, (1,))), 'called "then", the word for .* rename it'),
    ],
)
def test_observations_that_do_not_fit_are_refused(spec, parts, message):
    with pytest.raises(ValueError, match=message):
        parse_network(spec).check(parts)
