"""Modules from descriptions: shapes, initial weights, and recurrent layers against torch's own and step by step."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from velocirl.networks.activations import ACTIVATIONS
from velocirl.networks.declared import Columns
from velocirl.networks.encoding import encoding_for
from velocirl.networks.specs import parse_network
from velocirl.networks.torch.activations import activation_module
from velocirl.networks.torch.memory import GRU, LSTM
from velocirl.networks.torch.modules import Image, Pool, build_module

FLAT = Box(-1, 1, (6,))
IMAGE = Box(0, 255, (7, 5, 3), np.uint8)
PARTS = Dict({"camera": Box(0, 255, (8, 8), np.uint8), "gear": Discrete(4), "speed": Box(-1, 1, ())})


POLICY_AND_VALUE = [[Columns(3, 0.01)], [Columns(1)]]


def build(spec, space=FLAT, groups=POLICY_AND_VALUE, **options):
    settings = {"activation": "tanh", "initialiser": "orthogonal", **options}
    settings.setdefault("generator", np.random.default_rng(0))
    return build_module(parse_network(spec), encoding_for(space, False), groups, **settings)


def layers(module, kind=nn.Linear):
    return [one for one in module.modules() if isinstance(one, kind)]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_ours(name):
    inputs = np.linspace(-4, 4, 81)
    found = activation_module(name)(torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(found, [ACTIVATIONS[name].value(x) for x in inputs], rtol=1e-12, atol=1e-15)


def test_dense_layers_and_their_gains():
    module = build("mlp(64, 32)", activation="relu")
    first, second, policy, value = layers(module.requires_grad_(False))
    np.testing.assert_allclose(first.weight.T @ first.weight, 2 * np.eye(6), atol=1e-5)
    np.testing.assert_allclose(second.weight @ second.weight.T, 2 * np.eye(32), atol=1e-5)
    np.testing.assert_allclose(policy.weight @ policy.weight.T, 1e-4 * np.eye(3), atol=1e-9)
    np.testing.assert_allclose(value.weight @ value.weight.T, [[1]], atol=1e-5)
    assert not any(layer.bias.any() for layer in layers(module))
    inputs = torch.randn(5, 6)
    hidden = torch.relu(torch.relu(inputs @ first.weight.T) @ second.weight.T)
    expected = torch.cat([hidden @ policy.weight.T, hidden @ value.weight.T], dim=1)
    torch.testing.assert_close(module(inputs), expected)


def test_a_gaussian_has_free_deviations():
    module = build("mlp(8)", groups=[[Columns(2, 0.01), Columns(2, free=-0.75)], [Columns(1)]])
    outputs = module(torch.randn(4, 6))
    assert outputs.shape == (4, 5)
    assert (outputs[:, 2:4] == -0.75).all()
    assert dict(module.named_parameters())["ends.free.0"].shape == (2,)


def test_groups_apart_share_no_parameters():
    module = build("mlp(8, 5)", together=False)
    inputs, reached = torch.randn(4, 6), []
    for columns in (slice(0, 3), slice(3, 4)):
        module.zero_grad(set_to_none=True)
        module(inputs)[:, columns].sum().backward()
        reached.append([bool(one.grad.any()) for one in module.parameters()])
    assert sorted(zip(*reached, strict=True)) == [(False, True)] * 6 + [(True, False)] * 6


@pytest.mark.parametrize("spec", ["mlp(8, 5)", "cnn(4) mlp(8)"])
def test_critics_read_the_action_beside_the_features(spec):
    space = IMAGE if spec.startswith("cnn") else FLAT
    module = build(spec, space, groups=[[Columns(1)], [Columns(1)]], extra=2)
    observation, action = torch.rand(4, *space.shape), torch.randn(4, 2, requires_grad=True)
    values = module(observation, action)
    assert values.shape == (4, 2)
    assert not torch.equal(values[:, 0], values[:, 1])
    dense = layers(module)[0]
    assert dense.in_features == 2 + (4 * 7 * 5 if spec.startswith("cnn") else 6)
    for column in range(2):
        (slope,) = torch.autograd.grad(values[:, column].sum(), action, retain_graph=True)
        assert (slope != 0).all()


def test_weights_come_from_the_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one = build("cnn(4) mlp(8) lstm(4)", IMAGE)
    assert torch.equal(torch.get_rng_state(), before)
    other = build("cnn(4) mlp(8) lstm(4)", IMAGE)
    third = build("cnn(4) mlp(8) lstm(4)", IMAGE, generator=np.random.default_rng(1))
    same = [torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(next(one.parameters()), next(third.parameters()))


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((7, 5), 1), ((7, 5, 3), 3), ((3, 7, 5), 3), ((2, 9, 2), 2), ((4, 4, 4), 4)],
)
def test_the_smaller_outer_axis_is_that_of_channels(shape, channels):
    image = Image(shape)
    assert image.shape[0] == channels
    observation = torch.arange(2 * np.prod(shape)).reshape(2, *shape)
    seen = image(observation)
    assert seen.shape == (2, *image.shape)
    wanted = {2: observation[:, None]}.get(len(shape), observation)
    if shape == (7, 5, 3):
        wanted = observation.permute(0, 3, 1, 2)
    assert torch.equal(seen, wanted)


@pytest.mark.parametrize("frame", [(7, 5), (7, 5, 3), (3, 7, 5), (1, 7, 5)])
def test_the_channels_of_a_stack_are_those_of_its_frames_one_after_the_other(frame):
    shape = (4, *frame)
    observation = torch.arange(2 * np.prod(shape)).reshape(2, *shape)
    image, one = Image(shape), Image(frame)
    seen = image(observation)
    assert image.shape == (4 * one.shape[0], *one.shape[1:])
    assert torch.equal(seen, torch.cat([one(observation[:, k]) for k in range(4)], 1))


@pytest.mark.parametrize(("frame", "channels"), [((84, 84), 4), ((84, 84, 3), 12), ((3, 84, 84), 12)])
@pytest.mark.parametrize("spec", ["nature", "cnn(4, stride=2) mlp(8)"])
def test_convolutions_see_all_frames_of_a_stack(spec, frame, channels):
    module = build(spec, Box(0, 255, (4, *frame), np.uint8))
    assert layers(module, nn.Conv2d)[0].in_channels == channels
    assert module(torch.zeros(2, 4, *frame)).shape == (2, 4)


def test_channels_in_the_middle_of_a_stacks_frames_are_refused():
    with pytest.raises(ValueError, match=r"an image of \(84, 3, 84\) has its channels in the middle"):
        Image((4, 84, 3, 84))


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ("cnn(4, 6)", 6 * 7 * 5),
        ("cnn(4, stride=2)", 4 * 4 * 3),
        ("cnn(4, 6, pool=true)", 6 * 2 * 2),
        ("cnn(4, kernel=4)", 4 * 8 * 6),
        ("cnn(4, kernel=1)", 4 * 7 * 5),
        ("cnn(4x3)", 4 * 5 * 3),
        ("cnn(4x2s2, 6x2s1p1)", 6 * 4 * 3),
    ],
)
def test_convolutions(spec, size):
    module = build(spec, IMAGE)
    assert layers(module)[-1].in_features == size
    observation = torch.rand(2, 7, 5, 3)
    assert module(observation).shape == (2, 4)
    kernel = layers(module, nn.Conv2d)[0].weight
    rows = kernel.flatten(1)
    gain = ACTIVATIONS["tanh"].gain
    short = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
    np.testing.assert_allclose(short.detach(), gain**2 * np.eye(len(short)), atol=1e-4)


def test_a_convolution_is_activated_and_laid_out_in_a_row():
    module = build("cnn(4) mlp(5)", IMAGE)
    observation = torch.rand(2, 7, 5, 3)
    convolution, (dense, policy, value) = layers(module, nn.Conv2d)[0], layers(module)
    image = nn.functional.conv2d(observation.permute(0, 3, 1, 2), convolution.weight, padding=1).tanh()
    hidden = torch.tanh(image.reshape(2, -1) @ dense.weight.T)
    torch.testing.assert_close(module(observation), torch.cat([hidden @ policy.weight.T, hidden @ value.weight.T], 1))


@pytest.mark.parametrize("sides", [(4, 6), (5, 7), (1, 1), (2, 3)])
def test_pooling_is_that_of_torch(sides):
    image = torch.randn(2, 3, *sides, requires_grad=True)
    again = image.detach().clone().requires_grad_()
    found, expected = Pool()(image), nn.functional.max_pool2d(again, 2, ceil_mode=True)
    assert torch.equal(found, expected)
    weights = torch.randn_like(found)
    found.backward(weights)
    expected.backward(weights)
    torch.testing.assert_close(image.grad, again.grad)


def test_parts_have_encoders_and_others_pass_as_they_are():
    module = build({"camera": "cnn(2, stride=4)", "then": "mlp(16)"}, PARTS)
    assert layers(module)[0].in_features == 2 * 2 * 2 + 4 + 1
    observation = {"camera": torch.rand(3, 8, 8), "gear": torch.eye(4)[:3], "speed": torch.rand(3)}
    outputs = module(observation)
    assert outputs.shape == (3, 4)
    for name in observation:
        changed = {**observation, name: 1 - observation[name]}
        assert not torch.allclose(module(changed), outputs), name


def test_parts_without_encoders_are_one_row():
    module = build("mlp(16)", PARTS)
    assert layers(module)[0].in_features == 64 + 4 + 1
    observation = {"camera": torch.rand(3, 8, 8), "gear": torch.eye(4)[:3], "speed": torch.rand(3)}
    row = torch.cat([observation["camera"].reshape(3, 64), observation["gear"], observation["speed"][:, None]], 1)
    dense, policy, value = layers(module)
    hidden = torch.tanh(row @ dense.weight.T)
    torch.testing.assert_close(module(observation), torch.cat([hidden @ policy.weight.T, hidden @ value.weight.T], 1))


@pytest.mark.parametrize(("norm", "kinds"), [
    ("batch", (nn.BatchNorm2d, nn.BatchNorm1d)), ("layer", (nn.GroupNorm, nn.LayerNorm)),
])  # fmt: skip
def test_norms_come_before_the_activation_and_take_the_place_of_biases(norm, kinds):
    module = build(f"cnn(4, norm={norm}) mlp(5, norm={norm})", IMAGE)
    found = [layers(module, kind)[0] for kind in kinds]
    assert layers(module, nn.Conv2d)[0].bias is None
    assert layers(module)[0].bias is None
    assert all(one.bias is not None for one in (*found, layers(module)[1]))
    observation = torch.rand(6, 7, 5, 3)
    convolution, (dense, policy, value) = layers(module, nn.Conv2d)[0], layers(module)
    image = torch.tanh(found[0](convolution(observation.permute(0, 3, 1, 2))))
    hidden = torch.tanh(found[1](dense(image.reshape(6, -1))))
    torch.testing.assert_close(module(observation), torch.cat([policy(hidden), value(hidden)], 1))


def test_the_network_of_nature():
    module = build("nature", Box(0, 255, (84, 84, 4), np.uint8))
    assert [tuple(one.weight.shape) for one in layers(module, nn.Conv2d)] == [
        (32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3),
    ]  # fmt: skip
    assert (layers(module)[0].in_features, layers(module)[0].out_features) == (3136, 512)


@pytest.mark.parametrize(("spec", "shape", "message"), [
    ("cnn(4x8s4)", (7, 5, 3), r"cnn\(4x8s4\): the image of 7 by 5 is smaller than a kernel of 8: use smaller"),
    ("cnn(4x3s2, 4x3)", (7, 5, 3), r"image of 7 by 5, 3 by 2 before 4x3s1 is smaller than a kernel of 3"),
    ("cnn(4)", (84, 3, 84), r"\(84, 3, 84\) has its channels in the middle: give \(height, width, channels\)"),
])  # fmt: skip
def test_images_that_do_not_fit_are_refused(spec, shape, message):
    with pytest.raises(ValueError, match=message):
        build(spec, Box(0, 1, shape))


def test_descriptions_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="a cnn reads images"):
        build("cnn(4)")
    with pytest.raises(ValueError, match="unknown activation 'tahn'"):
        build("mlp(4)", activation="tahn")
    with pytest.raises(ValueError, match="unknown initialiser 'orthogonall'"):
        build("mlp(4)", initialiser="orthogonall")


def torch_lstm(memory, inputs):
    """torch's own with the same weights, whose gates are in the order i, f, g, o."""
    other = nn.LSTM(inputs, memory.size, len(memory.recur))
    order = [0, 1, 3, 2]
    for layer, (project, recurrent) in enumerate(zip(memory.project, memory.recur, strict=True)):
        copy_gates(other, layer, project, recurrent, order)
    return other


def torch_gru(memory, inputs):
    other = nn.GRU(inputs, memory.size, len(memory.recur))
    for layer, (project, recurrent) in enumerate(zip(memory.project, memory.recur, strict=True)):
        copy_gates(other, layer, project, recurrent, [0, 1, 2])
    return other


def copy_gates(other, layer, project, recurrent, order):
    def sorted_gates(tensor):
        gates = tensor.chunk(len(order))
        return torch.cat([gates[place] for place in order])

    with torch.no_grad():
        getattr(other, f"weight_ih_l{layer}").copy_(sorted_gates(project.weight))
        getattr(other, f"weight_hh_l{layer}").copy_(sorted_gates(recurrent.T))
        getattr(other, f"bias_ih_l{layer}").copy_(sorted_gates(project.bias))
        getattr(other, f"bias_hh_l{layer}").zero_()


@pytest.mark.parametrize("layer_count", [1, 2])
@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_memories_are_those_of_torch(kind, layer_count):
    memory = kind(5, 4, layer_count, np.random.default_rng(0))
    features = torch.randn(6, 3, 5)
    begin = torch.randn(layer_count, kind.carried, 3, 4)
    outputs, last = memory(features, None, begin.permute(2, 0, 1, 3).reshape(3, -1))
    if kind is LSTM:
        expected, (hidden, cell) = torch_lstm(memory, 5)(features, (begin[:, 0].contiguous(), begin[:, 1].contiguous()))
        expected_last = torch.stack([hidden, cell], dim=1)
    else:
        expected, hidden = torch_gru(memory, 5)(features, begin[:, 0].contiguous())
        expected_last = hidden[:, None]
    torch.testing.assert_close(outputs, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(last, expected_last.permute(2, 0, 1, 3).reshape(3, -1), atol=1e-6, rtol=1e-5)


def test_memories_begin_orthogonal_and_remember():
    memory = LSTM(5, 4, 2, np.random.default_rng(0))
    for project, recurrent in zip(memory.project, memory.recur, strict=True):
        for gate in recurrent.chunk(4, dim=1):
            np.testing.assert_allclose((gate.T @ gate).detach(), np.eye(4), atol=1e-5)
        assert project.bias.tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 8
    assert not GRU(5, 4, 1, np.random.default_rng(0)).project[0].bias.any()


@pytest.mark.parametrize("spec", ["mlp(7) lstm(4)", "gru(4, layers=2)", "cnn(2) lstm(4, layers=2)"])
def test_unrolling_is_stepping_with_resets(spec):
    space = IMAGE if spec.startswith("cnn") else FLAT
    module = build(spec, space)
    assert module.state_size == {"mlp(7) lstm(4)": 8, "gru(4, layers=2)": 8}.get(spec, 16)
    observation = torch.rand(6, 3, *space.shape)
    starts = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)) < 0.4
    assert 0 < starts.sum() < 18
    state = torch.randn(3, module.state_size)
    unrolled = module.unroll(observation, starts, state)
    assert unrolled.shape == (6, 3, 4)
    for step in range(6):
        outputs, state = module(observation[step], state * ~starts[step][:, None])
        torch.testing.assert_close(unrolled[step], outputs, atol=1e-6, rtol=1e-5)


def test_no_gradient_crosses_the_beginning_of_an_episode():
    module = build("lstm(4)")
    observation = torch.rand(4, 2, 6, requires_grad=True)
    starts = torch.zeros(4, 2, dtype=torch.bool)
    starts[2, 0] = True
    module.unroll(observation, starts, torch.zeros(2, module.state_size))[3].sum().backward()
    reached = observation.grad.abs().sum(-1) > 0
    assert reached.tolist() == [[False, True], [False, True], [True, True], [True, True]]


def test_parts_are_unrolled_too():
    module = build({"camera": "cnn(2)", "then": "gru(3)"}, PARTS)
    observation = {"camera": torch.rand(5, 2, 8, 8), "gear": torch.rand(5, 2, 4), "speed": torch.rand(5, 2)}
    starts = torch.zeros(5, 2, dtype=torch.bool)
    state = torch.zeros(2, 3)
    unrolled = module.unroll(observation, starts, state)
    for step in range(5):
        outputs, state = module({name: part[step] for name, part in observation.items()}, state)
        torch.testing.assert_close(unrolled[step], outputs, atol=1e-6, rtol=1e-5)
