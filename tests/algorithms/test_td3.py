"""The scalar functions of TD3 against torch autograd and by hand, in plain Python."""

import numpy as np
import pytest
import torch
from scalars import ROWS, SIZE, Critics, call, fresh, metrics_of, numbers, slope_of, stream, transitions

from velocirl.algorithms.online.td3 import (
    TD3,
    act,
    actor_gradient,
    critic_gradient,
    own_action,
    smooth_next_action,
    value_slope,
)  # fmt: skip
from velocirl.engine import random
from velocirl.networks.squashed import squashed_value

HEAD = squashed_value(SIZE, 0.1)
HELD = {"rtol": 1e-9, "atol": 1e-12}


def test_gradient_of_the_actor_through_the_first_critic():
    generator, rows = transitions(TD3, HEAD)
    outputs, critics, metrics = generator.normal(size=(ROWS, SIZE)), Critics(), metrics_of(TD3)
    gradient = fresh(outputs)
    call(own_action, actor=outputs, row=rows)
    slope = slope_of(critics, value_slope, rows, metrics)
    call(actor_gradient, row=rows, new_action_slope=slope, gradient=gradient)
    output = torch.tensor(outputs, requires_grad=True)
    loss = -critics(torch.tanh(output))[:, 0]
    loss.sum().backward()
    np.testing.assert_allclose(rows["new_action"], np.tanh(outputs), **HELD)
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["actor_loss"], loss.detach(), **HELD)
    assert not any(metrics[name].any() for name in ("critic_loss", "action_value", "td_error"))


def test_gradient_of_the_critics():
    """Weights of priorities count; what is infinite after the end of an episode does not."""
    generator, rows = transitions(TD3, HEAD)
    values, target_values = generator.normal(size=(2, ROWS, 2))
    over = rows["discount"] == 0
    goal = rows["reward"] + rows["discount"] * target_values.min(1)
    target_values[over], gradient, metrics = np.inf, fresh(values), metrics_of(TD3)
    call(critic_gradient, critics=values, target_critics=target_values, row=rows, gradient=gradient, metrics=metrics)
    output = torch.tensor(values, requires_grad=True)
    errors = output - torch.tensor(goal)[:, None]
    losses = torch.tensor(rows["weight"]) * (errors**2).sum(1) / 2
    losses.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["critic_loss"], losses.detach(), **HELD)
    np.testing.assert_allclose(metrics["action_value"], values.mean(1), **HELD)
    np.testing.assert_allclose(rows["error"], errors.abs().mean(1).detach(), **HELD)
    np.testing.assert_array_equal(metrics["td_error"], rows["error"])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_target_takes_the_more_modest_critic_and_nothing_after_the_end():
    def target(values, discount):
        row, gradient = transitions(TD3, HEAD)[1][0], np.zeros(2)
        row.reward, row.discount = 1.0, discount
        critic_gradient(np.zeros(2), np.array(values), row, gradient, metrics_of(TD3, 1)[0])
        return -gradient[0] / row.weight

    assert target([3.0, 2.0], 0.5) == pytest.approx(2.0)
    assert target([np.inf, np.nan], 0.0) == pytest.approx(1.0)
    assert np.isnan(target([2.0, np.nan], 0.5))
    assert np.isnan(target([np.nan, 2.0], 0.5))


@pytest.mark.parametrize(("smoothing", "limit"), [(0.2, 0.5), (2.0, 0.25)])
def test_the_next_action_is_smoothed_by_clipped_noise(smoothing, limit):
    _, rows = transitions(TD3, HEAD)
    settings, output, twin = numbers(smoothing=smoothing, smoothing_limit=limit), np.array([0.3, 4.0]), stream(1)
    call(smooth_next_action, target_actor=np.tile(output, (ROWS, 1)), row=rows, settings=settings, rng=stream(1))
    noise = np.clip([[smoothing * random.normal(twin) for _ in range(SIZE)] for _ in rows], -limit, limit)
    np.testing.assert_allclose(rows["next_action"], np.clip(np.tanh(output) + noise, -1, 1), atol=1e-7)


def test_the_next_action_is_that_of_the_target_actor():
    small = {"num_envs": 2, "hidden": (8,), "batch_size": 8, "learning_starts": 16, "buffer_size": 100, "seed": 1}
    agent = TD3("Pendulum-v1", **small, smoothing=0.0, device="python").learn(16)
    agent.learner.networks.networks["target_actor"].parameters[-1] = 9.0  # its only bias: the action is 1
    agent.learn(2)
    assert agent.metrics["train/n_updates"] == 2
    assert agent.learner.ring.drawn.rows["next_action"].min() > 0.99
    assert np.abs(agent.learner.ring.drawn.rows["new_action"]).max() < 0.9


def actions_of(correlation, exploration, steps=6000):
    row, rng, noise, actions = transitions(TD3, squashed_value(1, 0.1))[1][0], stream(1), np.zeros(1), np.zeros(steps)
    settings = numbers(noise_correlation=correlation)
    for t in range(steps):
        act(np.array([0.2]), row, exploration, noise, settings, rng)
        actions[t] = row.action[0]
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
