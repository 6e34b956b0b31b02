"""The losses of SAC for one sample against torch autograd and hand computations, in plain Python and compiled."""

import numpy as np
import pytest
import torch
from actor_critic_oracle import ROWS, SIZE, check_critics, improve_actor
from velocirl.algorithms.online.sac_loss import (
    ACTOR_LOSS,
    LOG_PROBABILITY,
    TEMPERATURE,
    TEMPERATURE_LOSS,
    SACSettings,
    sac_behaviour,
    sac_loss,
    sac_settings,
)

from velocirl.engine import random

SETTINGS = SACSettings(np.float32(-2))
TEMPERATURE_HERE = 0.3


def outputs():
    output = np.random.default_rng(0).normal(size=(ROWS, 2 * SIZE))
    output[::10, SIZE] = 2.5  # beyond the bounds of a deviation, on either side
    output[5::10, SIZE + 1] = -21.0
    return output


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_gradient_of_the_actor_through_the_critics(compiled):
    loss = sac_loss(SIZE, learns_temperature=True)
    observation, critics, noise, action, log_probability, part, gradient, metrics = improve_actor(
        loss, SETTINGS, outputs(), TEMPERATURE_HERE, compiled
    )
    output = torch.tensor(outputs(), requires_grad=True)
    deviation = output[:, SIZE:].clamp(-20, 2).exp()
    before = output[:, :SIZE] + deviation * torch.tensor(noise.astype(np.float64))
    density = torch.distributions.Normal(output[:, :SIZE], deviation).log_prob(before)
    density = density - 2 * (np.log(2) - before - torch.nn.functional.softplus(-2 * before))
    expected = density.sum(1)
    least = critics(observation, torch.tanh(before)).min(1).values
    loss_of_actor = TEMPERATURE_HERE * expected - least
    loss_of_actor.sum().backward()

    tolerance = {"rtol": 2e-3, "atol": 2e-4} if compiled else {"rtol": 1e-6, "atol": 1e-9}
    assert np.allclose(action, torch.tanh(before).detach(), rtol=1e-4, atol=1e-6)
    sane = (outputs()[:, SIZE:] > -10).all(1)  # torch's own density loses its digits at a deviation of exp(-20)
    assert np.allclose(log_probability[sane], expected.detach()[sane], **tolerance)
    assert np.allclose(gradient, output.grad, **tolerance)
    assert np.allclose(metrics[sane, ACTOR_LOSS] + part[sane], loss_of_actor.detach()[sane], **tolerance)
    assert np.array_equal(metrics[:, LOG_PROBABILITY], log_probability)
    assert np.allclose(metrics[:, TEMPERATURE], TEMPERATURE_HERE)
    wanted = -np.log(TEMPERATURE_HERE) * (log_probability + SETTINGS.target_entropy)
    assert np.allclose(metrics[:, TEMPERATURE_LOSS], wanted, rtol=1e-4, atol=1e-5)
    assert (metrics[:, :4] == 7).all()  # those of the critics


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_gradient_of_the_critics(compiled):
    check_critics(sac_loss(SIZE, True), SETTINGS, compiled)


def test_target_takes_the_more_modest_critic_and_the_entropy_and_neither_after_the_end():
    target = sac_loss(SIZE, True).target
    assert target(np.array([3.0, 2.0]), 1.0, 0.5, -0.8, 0.25) == pytest.approx(1 + 0.5 * (2 + 0.25 * 0.8))
    assert target(np.array([2.0, 3.0]), 1.0, 0.5, 0.8, 0.25) == pytest.approx(1 + 0.5 * (2 - 0.25 * 0.8))
    assert target(np.array([np.inf, np.nan]), 1.0, 0.0, np.inf, 0.25) == 1.0
    assert np.isnan(target(np.array([2.0, np.nan]), 1.0, 0.5, 0.8, 0.25))
    assert np.isnan(target(np.array([np.nan, 2.0]), 1.0, 0.5, 0.8, 0.25))


def test_the_temperature_falls_while_the_entropy_is_above_its_target():
    slope = sac_loss(SIZE, True).temperature_slope
    # Loss = -log(temperature) (log pi + target): its slope is that of -(log pi + target) by hand.
    assert slope(0.5, SETTINGS) == pytest.approx(1.5)  # entropy -0.5 above -2: descending makes it smaller
    assert slope(3.0, SETTINGS) == pytest.approx(-1.0)  # entropy -3 below -2: larger
    log_temperature = torch.tensor(0.7, requires_grad=True)
    (-(log_temperature * (0.5 + -2.0))).backward()
    assert slope(0.5, SETTINGS) == pytest.approx(log_temperature.grad.item())


def test_the_target_entropy_is_minus_the_size_unless_given():
    assert sac_settings(None, 3).target_entropy == -3
    assert sac_settings(-0.5, 3).target_entropy == -0.5


def test_actions_of_training_are_draws_with_noise_where_that_is_wanted():
    behaviour = sac_behaviour(1, 0.0, None)
    output, mask = np.array([0.2, -1.0]), np.zeros(1, np.int8)
    noise, action = np.zeros(1), np.zeros(1)
    drawn, noisy = [], []
    rng = random.streams(1, 1)[0]
    for _ in range(4000):
        behaviour.act(output, mask, 0.0, rng, noise, action)
        drawn.append(action[0])
        assert noise[0] == 0
        behaviour.act(output, mask, 0.5, rng, noise, action)
        noisy.append(action[0])
        noise[:] = 0
    assert np.arctanh(drawn).mean() == pytest.approx(0.2, abs=0.03)
    assert np.arctanh(drawn).std() == pytest.approx(np.exp(-1), rel=0.05)
    assert np.std(noisy) > 1.3 * np.std(drawn)
    assert np.abs(noisy).max() == 1


def test_random_actions_are_uniform():
    draw = sac_behaviour(2, 0.0, None).draw
    rng, actions = random.streams(1, 1)[0], np.zeros((4000, 2))
    for action in actions:
        draw(np.zeros(1, np.int8), rng, action)
    assert np.allclose(actions.mean(0), 0, atol=0.04)
    assert np.allclose(actions.std(0), 1 / np.sqrt(3), rtol=0.04)
    assert np.abs(actions).max() <= 1
