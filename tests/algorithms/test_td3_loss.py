"""The losses of TD3 for one sample against torch autograd and hand computations, in plain Python and compiled."""

import numpy as np
import pytest
import torch
from actor_critic_oracle import ROWS, SIZE, check_critics, improve_actor
from velocirl.algorithms.online.td3_loss import ACTOR_LOSS, TD3Settings, td3_behaviour, td3_loss

from velocirl.engine import random

SETTINGS = TD3Settings(np.float32(0.2), np.float32(0.5))


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_gradient_of_the_actor_through_the_first_critic(compiled):
    outputs = np.random.default_rng(0).normal(size=(ROWS, SIZE))
    observation, critics, _, action, log_probability, part, gradient, metrics = improve_actor(
        td3_loss(SIZE), SETTINGS, outputs, 0.0, compiled
    )
    output = torch.tensor(outputs, requires_grad=True)
    loss = -critics(observation, torch.tanh(output))[:, 0]
    loss.sum().backward()
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if compiled else {"rtol": 1e-9, "atol": 1e-12}
    assert np.allclose(action, np.tanh(outputs), **tolerance)
    assert np.allclose(gradient, output.grad, **tolerance)
    assert np.allclose(metrics[:, ACTOR_LOSS] + part, loss.detach(), **tolerance)
    assert (log_probability == 0).all()


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_gradient_of_the_critics(compiled):
    check_critics(td3_loss(SIZE), SETTINGS, compiled)


def test_target_takes_the_more_modest_critic_and_nothing_after_the_end():
    target = td3_loss(SIZE).target
    assert target(np.array([3.0, 2.0]), 1.0, 0.5, 0.0, 0.0) == 2.0
    assert target(np.array([np.inf, np.nan]), 1.0, 0.0, 0.0, 0.0) == 1.0
    assert np.isnan(target(np.array([2.0, np.nan]), 1.0, 0.5, 0.0, 0.0))


@pytest.mark.parametrize(("smoothing", "limit"), [(0.2, 0.5), (2.0, 0.25)])
def test_the_next_action_is_smoothed_by_clipped_noise(smoothing, limit):
    dream = td3_loss(SIZE).dream
    settings = TD3Settings(np.float32(smoothing), np.float32(limit))
    output, action = np.array([0.3, 4.0]), np.zeros(SIZE)
    rng, twin = random.streams(1, 1)[0], random.streams(1, 1)[0]
    for _ in range(200):
        assert dream(output, rng, settings, action) == 0
        noise = np.clip([np.float32(smoothing) * random.normal(twin) for _ in range(SIZE)], -limit, limit)
        assert np.allclose(action, np.clip(np.tanh(output) + noise, -1, 1), atol=1e-7)


def actions_of(correlation, exploration, steps=6000):
    act = td3_behaviour(1, correlation, None).act
    rng, noise, action, actions = random.streams(1, 1)[0], np.zeros(1), np.zeros(1), np.zeros(steps)
    for t in range(steps):
        act(np.array([0.2]), np.zeros(1, np.int8), exploration, rng, noise, action)
        actions[t] = action[0]
    return actions


def test_actions_of_training_are_the_networks_own_and_noise():
    assert np.allclose(actions_of(0.0, 0.0, 10), np.tanh(0.2))
    actions = actions_of(0.0, 0.1)
    assert actions.mean() == pytest.approx(np.tanh(0.2), abs=0.01)
    assert actions.std() == pytest.approx(0.1, rel=0.05)
    assert np.corrcoef(actions[1:], actions[:-1])[0, 1] == pytest.approx(0, abs=0.05)
    assert np.abs(actions_of(0.0, 2.0, 500)).max() == 1  # what is remembered is what was done


def test_correlated_noise_keeps_its_deviation():
    actions = actions_of(0.9, 0.1)
    assert actions.std() == pytest.approx(0.1, rel=0.1)
    assert np.corrcoef(actions[1:], actions[:-1])[0, 1] == pytest.approx(0.9, abs=0.03)
