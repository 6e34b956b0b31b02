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
    cost_critic_gradient,
    cost_slope,
    sample_action,
)  # fmt: skip
from velocirl.networks.squashed import squashed_gaussian

HEAD, LIMITED, MULTIPLIERS = squashed_gaussian(SIZE), ("heat", "pressure"), (0.3, 1.2)
CONFIG = {"constraints": 3, "limited": LIMITED}
COUNTED = (0.0, 0.0, 1.0, 1.0, 0.0, 0.0)  # the third constraint, then the first
SETTINGS = numbers(target_entropy=-2.0, counted=COUNTED, limits=(4.0, 10.0))
LEARNT = numbers(log_temperature=log(0.3), multiplier=MULTIPLIERS)
HELD = {"rtol": 1e-6, "atol": 1e-8}


def metrics():
    return metrics_of(SACLagrangian, limited=LIMITED)


def both_costs(critics, action):
    """Two critics of each of two limits, either of which may be the higher one."""
    one, other = critics(action).unbind(1)
    return torch.stack([one**2, other**2, 1.0 - one, other], 1)


def highest_costs(critics, action):
    return both_costs(critics, action).view(ROWS, 2, 2).max(2).values


def test_gradient_of_the_actor_through_all_critics():
    generator, rows = transitions(SACLagrangian, HEAD, **CONFIG)
    output, told = generator.normal(size=(ROWS, 2 * SIZE)), metrics()
    call(sample_action, actor=output, row=rows, rng=stream())
    np.testing.assert_array_equal(rows["paid_action"], rows["new_action"])
    critics, slope = Critics(), None
    slope = slope_of(critics, value_slope, rows, told)
    paid = torch.tensor(rows["paid_action"], requires_grad=True)
    costs, given = both_costs(critics, paid), fresh(np.zeros((ROWS, 4)))
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
    paying = (highest_costs(critics, action) * torch.tensor(MULTIPLIERS)).sum(1)
    loss = 0.3 * density - (critics(action).min(1).values - paying) / (1 + sum(MULTIPLIERS))
    loss.sum().backward()
    np.testing.assert_allclose(gradient, double.grad, **HELD)
    np.testing.assert_allclose(told["cost_value"], highest_costs(critics, paid).detach(), **HELD)
    np.testing.assert_array_equal(told["multiplier"], [MULTIPLIERS] * ROWS)


@pytest.mark.parametrize("each", [1, 2])
def test_gradient_of_the_critics_of_costs(each):
    """Each learns what the highest of its limit expects; what is infinite after an episode's end does not count."""
    generator, rows = transitions(SACLagrangian, HEAD, **CONFIG)
    values, target_values = generator.normal(size=(2, ROWS, 2 * each))
    rows["costs"] = generator.integers(0, 3, (ROWS, 3))
    over = rows["discount"] == 0
    highest = target_values.reshape(ROWS, 2, each).max(2)
    target_values[over] = np.inf
    gradient, told = fresh(values), metrics()
    call(
        cost_critic_gradient, cost_critics=values, target_cost_critics=target_values, row=rows, settings=SETTINGS,
        gradient=gradient, metrics=told,
    )  # fmt: skip
    following = np.where(over[:, None], 0.0, rows["discount"][:, None] * highest)
    output = torch.tensor(values, requires_grad=True)
    errors = output - torch.tensor(rows["costs"][:, [2, 0]] + following).repeat_interleave(each, 1)
    losses = torch.tensor(rows["weight"]) * (errors**2).sum(1) / 2
    losses.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(told["cost_critic_loss"], losses.detach(), **HELD)
