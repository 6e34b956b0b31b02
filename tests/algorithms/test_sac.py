"""The scalar functions of SAC against torch autograd and by hand, in plain Python."""

from math import exp, log

import numpy as np
import pytest
import torch
from scalars import ROWS, SIZE, Critics, call, fresh, metrics_of, numbers, slope_of, stream, transitions

from velocirl.algorithms.online.sac import (
    SAC,
    act,
    actor_gradient,
    critic_gradient,
    sample_action,
    sample_next_action,
    temperature_gradient,
    value_slope,
)  # fmt: skip
from velocirl.networks.squashed import squashed_gaussian

HEAD, SETTINGS = squashed_gaussian(SIZE), numbers(target_entropy=-2.0)
TEMPERATURE = 0.3
LEARNT = numbers(log_temperature=log(TEMPERATURE))
HELD = {"rtol": 1e-6, "atol": 1e-9}


def outputs():
    output = np.random.default_rng(0).normal(size=(ROWS, 2 * SIZE))
    output[::10, SIZE] = 2.5  # beyond the bounds of a deviation, on either side
    output[5::10, SIZE + 1] = -21.0
    return output


def policy(output, noise):
    """The action that some noise makes and its log-probability, by torch."""
    deviation = output[:, SIZE:].clamp(-20, 2).exp()
    before = output[:, :SIZE] + deviation * torch.tensor(noise)
    density = torch.distributions.Normal(output[:, :SIZE], deviation).log_prob(before)
    density = density - 2 * (np.log(2) - before - torch.nn.functional.softplus(-2 * before))
    return torch.tanh(before), density.sum(1)


def test_gradient_of_the_actor_through_the_critics():
    _, rows = transitions(SAC, HEAD)
    critics, metrics, gradient = Critics(), metrics_of(SAC), fresh(outputs())
    call(sample_action, actor=outputs(), row=rows, rng=stream())
    slope = slope_of(critics, value_slope, rows, metrics)
    call(
        actor_gradient, actor=outputs(), row=rows, new_action_slope=slope, numbers=LEARNT, settings=SETTINGS,
        gradient=gradient, metrics=metrics,
    )  # fmt: skip
    output = torch.tensor(outputs(), requires_grad=True)
    action, log_probability = policy(output, rows["noise"])
    loss = TEMPERATURE * log_probability - critics(action).min(1).values
    loss.sum().backward()
    sane = (outputs()[:, SIZE:] > -10).all(1)  # torch's own density loses its digits at a deviation of exp(-20)
    found = rows["log_probability"]
    np.testing.assert_allclose(rows["new_action"], action.detach(), **HELD)
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(found[sane], log_probability.detach()[sane], **HELD)
    np.testing.assert_allclose(metrics["actor_loss"][sane], loss.detach()[sane], **HELD)
    np.testing.assert_array_equal(metrics["log_probability"], found)
    np.testing.assert_array_equal(metrics["entropy"], -found)
    np.testing.assert_allclose(metrics["temperature"], TEMPERATURE)
    np.testing.assert_allclose(metrics["temperature_loss"], -log(TEMPERATURE) * (found - 2.0), **HELD)
    assert not any(metrics[name].any() for name in ("critic_loss", "action_value", "td_error"))


def test_gradient_of_the_critics():
    """Weights of priorities count; what is infinite after the end of an episode does not."""
    generator, rows = transitions(SAC, HEAD)
    values, target_values = generator.normal(size=(2, ROWS, 2))
    call(sample_next_action, actor=outputs(), row=rows, rng=stream())
    over = rows["discount"] == 0
    target_values[over], rows["next_log_probability"][over] = np.inf, -np.inf
    gradient, metrics = fresh(values), metrics_of(SAC)
    call(
        critic_gradient, critics=values, target_critics=target_values, row=rows, numbers=LEARNT, gradient=gradient,
        metrics=metrics,
    )  # fmt: skip
    following = target_values.min(1) - TEMPERATURE * rows["next_log_probability"]
    goal = rows["reward"] + np.where(over, 0.0, rows["discount"] * np.where(over, 0.0, following))
    output = torch.tensor(values, requires_grad=True)
    errors = output - torch.tensor(goal)[:, None]
    losses = torch.tensor(rows["weight"]) * (errors**2).sum(1) / 2
    losses.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["critic_loss"], losses.detach(), **HELD)
    np.testing.assert_allclose(metrics["action_value"], values.mean(1), **HELD)
    np.testing.assert_allclose(rows["error"], errors.abs().mean(1).detach(), **HELD)
    np.testing.assert_array_equal(metrics["td_error"], rows["error"])


def test_the_next_action_is_drawn_with_its_probability():
    _, rows = transitions(SAC, HEAD)
    call(sample_next_action, actor=outputs(), row=rows, rng=stream())
    again = rows.copy()
    call(sample_action, actor=outputs(), row=again, rng=stream())
    np.testing.assert_array_equal(rows["next_action"], again["new_action"])
    np.testing.assert_array_equal(rows["next_log_probability"], again["log_probability"])


def target(values, discount, log_probability):
    _, rows = transitions(SAC, HEAD)
    row = rows[0]
    row.reward, row.discount, row.next_log_probability = 1.0, discount, log_probability
    gradient, estimates = np.zeros(2), np.zeros(2)
    critic_gradient(
        estimates, np.array(values), row, numbers(log_temperature=log(0.25)), gradient, metrics_of(SAC, 1)[0]
    )
    return -gradient[0] / row.weight


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_target_takes_the_more_modest_critic_and_the_entropy_and_neither_after_the_end():
    assert target([3.0, 2.0], 0.5, -0.8) == pytest.approx(1 + 0.5 * (2 + 0.25 * 0.8))
    assert target([2.0, 3.0], 0.5, 0.8) == pytest.approx(1 + 0.5 * (2 - 0.25 * 0.8))
    assert target([np.inf, np.nan], 0.0, np.inf) == pytest.approx(1.0)
    assert np.isnan(target([2.0, np.nan], 0.5, 0.8))
    assert np.isnan(target([np.nan, 2.0], 0.5, 0.8))


def test_the_temperature_falls_while_the_entropy_is_above_its_target():
    def slope(log_probability):
        return temperature_gradient(numbers(log_probability=log_probability), SETTINGS)

    # Loss = -log(temperature) (log pi + target): its slope is that of -(log pi + target) by hand.
    assert slope(0.5) == pytest.approx(1.5)  # entropy -0.5 above -2: descending makes it smaller
    assert slope(3.0) == pytest.approx(-1.0)  # entropy -3 below -2: larger
    log_temperature = torch.tensor(0.7, requires_grad=True)
    (-(log_temperature * (0.5 + -2.0))).backward()
    assert slope(0.5) == pytest.approx(log_temperature.grad.item())


def test_the_target_entropy_is_minus_the_size_unless_given():
    assert SAC("Pendulum-v1", device="python").numbers()["target_entropy"] == -1
    assert SAC("Pendulum-v1", device="python", target_entropy=-0.5).numbers()["target_entropy"] == -0.5


def test_a_temperature_that_is_given_is_where_it_begins():
    assert SAC("Pendulum-v1", device="python").task().number_starts == {"log_temperature": 0.0}
    starts = SAC("Pendulum-v1", device="python", temperature=0.2).task().number_starts
    assert exp(starts["log_temperature"]) == pytest.approx(0.2)


def test_actions_of_training_are_draws_with_noise_where_that_is_wanted():
    _, rows = transitions(SAC, squashed_gaussian(1))
    row, rng, output, noise = rows[0], stream(1), np.array([0.2, -1.0]), np.zeros(1)
    settings, drawn, noisy = numbers(noise_correlation=0.0), [], []
    for _ in range(4000):
        act(output, row, 0.0, noise, settings, rng)
        drawn.append(row.action[0])
        assert noise[0] == 0
        act(output, row, 0.5, noise, settings, rng)
        noisy.append(row.action[0])
        noise[:] = 0
    assert np.arctanh(drawn).mean() == pytest.approx(0.2, abs=0.03)
    assert np.arctanh(drawn).std() == pytest.approx(np.exp(-1), rel=0.05)
    assert np.std(noisy) > 1.3 * np.std(drawn)
    assert np.abs(noisy).max() == 1


def test_random_actions_are_uniform():
    rng, actions = stream(1), np.zeros((4000, 2))
    for action in actions:
        HEAD.draw(np.zeros(1, np.int8), rng, action)
    assert np.allclose(actions.mean(0), 0, atol=0.04)
    assert np.allclose(actions.std(0), 1 / np.sqrt(3), rtol=0.04)
    assert np.abs(actions).max() <= 1
