"""Squashed heads against torch's distributions in double precision, in plain Python and compiled."""

import numpy as np
import pytest
import torch

from velocirl.engine import random
from velocirl.engine.compiler.compiling import compile_loop, learning_translator
from velocirl.networks.squashed import log_squash_slope, squash, squashed_gaussian, squashed_value, within_reach

FAR = np.array([-80.0, -20.0, -9.0, -3.0, -0.1, 0.0, 0.1, 3.0, 9.0, 20.0, 80.0])


def test_the_slope_of_the_tangent_is_exact_and_stays_finite_however_far_out():
    before = torch.tensor(FAR)
    expected = 2 * (np.log(2) - before - torch.nn.functional.softplus(-2 * before))
    assert np.allclose([log_squash_slope(u) for u in FAR], expected, rtol=1e-12, atol=1e-12)
    near = FAR[np.abs(FAR) < 4]
    assert np.allclose([log_squash_slope(u) for u in near], np.log(1 - np.tanh(near) ** 2), rtol=1e-9, atol=1e-12)


def slopes(before, slope):
    for i in range(len(before)):
        slope[i] = log_squash_slope(before[i])


def test_the_slope_of_the_tangent_in_single_precision():
    before, slope = FAR.astype(np.float32), np.zeros(len(FAR), np.float32)
    compile_loop(slopes, (before, slope), learning_translator("test"), before=lambda: None)(before, slope)
    assert np.allclose(slope, [log_squash_slope(u) for u in FAR], rtol=3e-7, atol=5e-7)


def density(mean, log_deviation, noise):
    """The action and its log-density by torch's own transformed distribution."""
    normal = torch.distributions.Normal(mean, torch.exp(log_deviation.clamp(-20, 2)))
    squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform(cache_size=1))
    before = mean + normal.scale * noise
    action = squashed.transforms[0](before)
    return action, squashed.log_prob(action)


@pytest.mark.parametrize("log_deviation", [-30.0, -3.0, 0.0, 1.0, 5.0])
def test_density_of_a_squashed_number(log_deviation):
    generator = np.random.default_rng(0)
    for mean, noise in generator.normal(size=(50, 2)):
        action, log_density = squash(mean, log_deviation, noise)
        wanted = density(*(torch.tensor(x, dtype=torch.float64) for x in (mean, log_deviation, noise)))
        assert np.allclose((action, log_density), wanted, rtol=1e-6, atol=1e-9)


def loop_of(head):
    sample, mode = head.sample, head.mode

    def act(output, mask, rng, drawn, best, log_probability):
        for i in range(len(output)):
            log_probability[i] = sample(output[i], mask, rng, drawn[i])
            mode(output[i], mask, best[i])

    return act


def run(head, output, compiled):
    rows = len(output)
    mask, rng = np.zeros(1, np.int8), random.streams(3, 1)[0]
    drawn, best = (np.zeros((rows, head.action_size), np.float32) for _ in range(2))
    arguments = (output, mask, rng, drawn, best, np.zeros(rows, np.float32))
    act = loop_of(head)
    if compiled:
        act = compile_loop(act, arguments, learning_translator("test"), before=lambda: None)
    act(*arguments)
    return drawn, best, arguments[-1]


def test_a_squashed_gaussian_draws_as_torch_does_and_its_mode_is_the_tangent_of_the_mean():
    head = squashed_gaussian(2)
    assert (head.outputs, head.action_size, head.action_dtype) == (4, 2, "float32")
    output = np.tile(np.array([[0.4, -1.0, -0.5, 0.3]], np.float32), (20_000, 1))
    drawn, best, log_probability = run(head, output, compiled=True)
    assert np.allclose(best, np.tanh(output[:, :2]), atol=1e-6)
    before = np.arctanh(np.clip(drawn.astype(np.float64), -1 + 1e-7, 1 - 1e-7))
    assert np.allclose(before.mean(0), [0.4, -1.0], atol=0.05)
    assert np.allclose(before.std(0), np.exp([-0.5, 0.3]), rtol=0.05)
    mean, log_deviation = (torch.tensor(part.astype(np.float64)) for part in (output[:, :2], output[:, 2:]))
    noise = (torch.tensor(before) - mean) / log_deviation.exp()
    wanted = density(mean, log_deviation, noise)[1].sum(1).numpy()
    near = (np.abs(drawn) < 0.99).all(1)
    assert np.allclose(log_probability[near], wanted[near], atol=2e-3)
    assert near.mean() > 0.8


@pytest.mark.parametrize("head", [squashed_gaussian(3), squashed_value(3, 0.3)], ids=lambda head: head.name)
def test_plain_and_compiled_agree(head):
    output = np.random.default_rng(1).normal(size=(30, head.outputs)).astype(np.float32)
    for plain, compiled in zip(run(head, output, False), run(head, output, True), strict=True):
        assert np.allclose(plain, compiled, rtol=1e-4, atol=1e-5)


def test_a_squashed_value_draws_around_its_mode_and_stays_within_reach():
    output = np.zeros((20_000, 2), np.float32)
    output[:, 1] = 6.0
    drawn, best, _ = run(squashed_value(2, 0.3), output, compiled=True)
    assert np.allclose(best, np.tanh(output), atol=1e-6)
    assert np.isclose(drawn[:, 0].mean(), 0, atol=0.01)
    assert np.isclose(drawn[:, 0].std(), 0.3, rtol=0.03)
    assert drawn[:, 1].max() == 1
    assert np.isclose((drawn[:, 1] == 1).mean(), 0.5, atol=0.02)
    assert np.array_equal(run(squashed_value(2, 0.0), output[:5], compiled=True)[0], best[:5])


def test_what_is_not_a_number_stays_so():
    assert np.isnan(within_reach(np.float32(np.nan)))
    assert np.isnan(squash(np.float32(np.nan), 0.0, 0.0)[0])
