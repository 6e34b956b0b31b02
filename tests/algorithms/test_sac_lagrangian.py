"""The scalar functions of SAC-Lagrangian against torch autograd and by hand, in plain Python."""

from math import log

import numpy as np
import pytest
import torch
from scalars import ROWS, SIZE, Critics, call, fresh, metrics_of, numbers, slope_of, stream, transitions

from velocirl import SACLagrangian
from velocirl.algorithms.online.sac import value_slope
from velocirl.algorithms.safe.sac_lagrangian import (
    actor_gradient,
    control_multipliers,
    cost_critic_gradient,
    cost_slope,
    move_multipliers,
    sample_action,
)  # fmt: skip
from velocirl.networks.squashed import squashed_gaussian

HEAD, LIMITED, MULTIPLIERS = squashed_gaussian(SIZE), ("heat", "pressure"), (0.3, 1.2)
CONFIG = {"constraints": 3, "limited": LIMITED}
COUNTED = (0.0, 0.0, 1.0, 1.0, 0.0, 0.0)  # the third constraint, then the first
SETTINGS = numbers(target_entropy=-2.0, counted=COUNTED, limits=(4.0, 10.0), steps_of_value=3.6)
LEARNT = numbers(log_temperature=log(0.3), multiplier=MULTIPLIERS)
HELD = {"rtol": 1e-6, "atol": 1e-9}


def metrics():
    return metrics_of(SACLagrangian, limited=LIMITED)


def test_gradient_of_the_actor_through_all_critics():
    generator, rows = transitions(SACLagrangian, HEAD, **CONFIG)
    output, told = generator.normal(size=(ROWS, 2 * SIZE)), metrics()
    call(sample_action, actor=output, row=rows, rng=stream())
    np.testing.assert_array_equal(rows["paid_action"], rows["new_action"])
    critics, slope = Critics(), None
    slope = slope_of(critics, value_slope, rows, told)
    paid = torch.tensor(rows["paid_action"], requires_grad=True)
    costs, given = critics(paid) ** 2, fresh(np.zeros((ROWS, 2)))
    call(
        cost_slope, cost_critics=costs.detach().numpy(), numbers=LEARNT, settings=SETTINGS, gradient=given, metrics=told
    )
    costs.backward(torch.tensor(given))
    gradient = fresh(output)
    call(
        actor_gradient, actor=output, row=rows, new_action_slope=slope, paid_action_slope=paid.grad.numpy(),
        numbers=LEARNT, settings=SETTINGS, gradient=gradient, metrics=told,
    )  # fmt: skip

    double = torch.tensor(output, requires_grad=True)
    deviation = double[:, SIZE:].clamp(-20, 2).exp()
    before = double[:, :SIZE] + deviation * torch.tensor(rows["noise"])
    density = torch.distributions.Normal(double[:, :SIZE], deviation).log_prob(before)
    density = (density - 2 * (log(2) - before - torch.nn.functional.softplus(-2 * before))).sum(1)
    action = torch.tanh(before)
    paying = (critics(action) ** 2 * torch.tensor(MULTIPLIERS)).sum(1)
    loss = 0.3 * density - (critics(action).min(1).values - paying) / (1 + sum(MULTIPLIERS))
    loss.sum().backward()
    np.testing.assert_allclose(gradient, double.grad, **HELD)
    np.testing.assert_allclose(told["expected_cost"], 3.6 * costs.detach().numpy(), **HELD)
    np.testing.assert_array_equal(told["multiplier"], [MULTIPLIERS] * ROWS)


def test_gradient_of_the_critics_of_costs():
    """What is infinite after the end of an episode does not count."""
    generator, rows = transitions(SACLagrangian, HEAD, **CONFIG)
    values, target_values = generator.normal(size=(2, ROWS, 2))
    rows["costs"] = generator.integers(0, 3, (ROWS, 3))
    over = rows["discount"] == 0
    target_values[over] = np.inf
    gradient, told = fresh(values), metrics()
    call(
        cost_critic_gradient, cost_critics=values, target_cost_critics=target_values, row=rows, settings=SETTINGS,
        gradient=gradient, metrics=told,
    )  # fmt: skip
    following = np.where(over[:, None], 0.0, rows["discount"][:, None] * np.where(over[:, None], 0.0, target_values))
    output = torch.tensor(values, requires_grad=True)
    errors = output - torch.tensor(rows["costs"][:, [2, 0]] + following)
    losses = torch.tensor(rows["weight"]) * (errors**2).sum(1) / 2
    losses.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(told["cost_critic_loss"], losses.detach(), **HELD)


def test_the_multiplier_moves_by_the_cost_that_is_expected():
    """By hand: 0.1 for each limit by which it is exceeded, within one limit, and never below 0 or above 0.35."""
    settings = numbers(limits=(4.0, 10.0), multiplier_rate=0.1, largest_multiplier=0.35)
    learnt, found = numbers(multiplier=(0.0, 0.0)), []
    for costs in ((6.0, 0.0), (99.0, 15.0), (8.0, 15.0), (8.0, 5.0), (8.0, -7.0), (3.0, 10.0)):
        move_multipliers(numbers(expected_cost=costs), learnt, settings)
        found.append(learnt.multiplier.tolist())
    expected = [[0.05, 0.0], [0.15, 0.05], [0.25, 0.1], [0.35, 0.05], [0.35, 0.0], [0.325, 0.0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_what_is_added_at_once_goes_with_the_excess():
    """By hand: what 0.1 a time adds up to, and 0.4 times the excess beside it; both stay within 0 and 0.6."""
    settings = numbers(limits=(4.0,), multiplier_rate=0.1, proportional_gain=0.4, largest_multiplier=0.6)
    learnt, found = numbers(multiplier=(0.0,), integral=(0.0,)), []
    for cost in (6.0, 99.0, 8.0, 8.0, 4.0, 2.0, 0.0, 0.0):
        control_multipliers(numbers(expected_cost=(cost,)), learnt, settings)
        found.append([learnt.multiplier[0], learnt.integral[0]])
    sums = [0.05, 0.15, 0.25, 0.35, 0.35, 0.3, 0.2, 0.1]
    prices = [0.25, 0.55, 0.6, 0.6, 0.35, 0.1, 0.0, 0.0]
    np.testing.assert_allclose(found, np.transpose([prices, sums]), atol=1e-12)


@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_a_constant_cost_is_expected_in_every_step(gamma):
    """With a cost of c in each step, C = c / (1 - gamma), and an episode of 10 steps is expected to cost 10 c."""
    told = metrics_of(SACLagrangian, 1, limited=("heat",))
    settings = numbers(steps_of_value=10 * (1.0 - gamma))
    cost_slope(np.array([0.3 / (1.0 - gamma)]), numbers(multiplier=(0.0,)), settings, np.zeros(1), told[0])
    assert told["expected_cost"][0, 0] == pytest.approx(3.0)
