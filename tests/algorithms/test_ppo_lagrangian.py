"""The scalar functions of PPO-Lagrangian against torch autograd and by hand, in plain Python."""

from math import inf

import numpy as np
import pytest
import torch
from scalars import call, fresh, metrics_of, numbers, stepped, stream

from velocirl import PPOLagrangian
from velocirl.algorithms.online import ppo
from velocirl.algorithms.safe.ppo_lagrangian import act, loss_gradient, mix_advantages, move_multipliers, state_value
from velocirl.networks.heads import categorical

HEAD, ROWS, LIMITED = categorical(3), 60, ("heat", "pressure")
MULTIPLIERS = (0.3, 1.2)
LEARNT = numbers(multiplier=MULTIPLIERS)
SETTINGS = numbers(
    weight_limit=inf,
    clip=0.2, value_clip=0.0, dual_clip=0.0, entropy_coefficient=0.05, normalise_advantages=0.0, value_coefficient=0.5,
    cost_value_coefficient=0.8,
)  # fmt: skip
MEANS = numbers(advantage=0.0, advantage_scale=0.0, rows=ROWS)
HELD = {"rtol": 1e-9, "atol": 1e-11}


def rows_of():
    generator, rows = np.random.default_rng(3), stepped(PPOLagrangian, HEAD, ROWS, constraints=3, limited=LIMITED)
    output = generator.normal(size=(ROWS, 3 + 1 + 2))
    rows["action"][:, 0] = generator.integers(0, 3, ROWS)
    rows["log_probability"] = generator.normal(-1.1, 0.3, ROWS)
    for name in ("reward_advantage", "target", "cost_advantages", "cost_targets"):
        rows[name] = generator.normal(size=rows[name].shape)
    return output, rows


def test_advantages_are_mixed_at_the_prices_of_costs():
    _, rows = rows_of()
    call(mix_advantages, row=rows, numbers=LEARNT)
    expected = (rows["reward_advantage"] - rows["cost_advantages"] @ np.array(MULTIPLIERS)) / (1 + sum(MULTIPLIERS))
    np.testing.assert_allclose(rows["advantage"], expected, **HELD)


def test_gradient_is_that_of_ppo_and_of_the_cost_values():
    output, rows = rows_of()
    call(mix_advantages, row=rows, numbers=LEARNT)
    gradient, metrics = fresh(output), metrics_of(PPOLagrangian, ROWS, limited=LIMITED)
    call(
        loss_gradient, head=HEAD, policy=output, row=rows, means=MEANS, numbers=LEARNT, settings=SETTINGS,
        gradient=gradient, metrics=metrics,
    )  # fmt: skip
    double = torch.tensor(output, requires_grad=True)
    choice = torch.distributions.Categorical(logits=double[:, :3])
    ratio = torch.exp(choice.log_prob(torch.tensor(rows["action"][:, 0])) - torch.tensor(rows["log_probability"]))
    advantage = torch.tensor(rows["advantage"])
    objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    value_loss = (double[:, 3] - torch.tensor(rows["target"])) ** 2 / 2
    cost_loss = ((double[:, 4:] - torch.tensor(rows["cost_targets"])) ** 2).sum(1) / 2
    loss = -objective + 0.5 * value_loss - 0.05 * choice.entropy() + 0.8 * cost_loss
    loss.sum().backward()
    np.testing.assert_allclose(gradient, double.grad, **HELD)
    np.testing.assert_allclose(metrics["loss"], loss.detach(), **HELD)
    np.testing.assert_allclose(metrics["cost_value_loss"], cost_loss.detach(), **HELD)
    np.testing.assert_array_equal(metrics["multiplier"], [MULTIPLIERS] * ROWS)


def test_an_action_is_that_of_ppo_and_all_values_are_kept():
    output, rows = rows_of()
    plain = stepped(ppo.PPO, HEAD, ROWS)
    mask = np.ones((ROWS, 3), np.int8)
    for i in range(ROWS):
        act(HEAD, output[i], rows[i], mask[i], stream(i))
        ppo.act(HEAD, output[i], plain[i], mask[i], stream(i))
    for name in ("action", "log_probability", "value"):
        np.testing.assert_array_equal(rows[name], plain[name])
    np.testing.assert_array_equal(rows["cost_values"], output[:, 4:])
    state_value(HEAD, 2.0 * output[0], rows[0])
    assert rows[0].value == 2.0 * output[0, 3]
    assert rows[0].cost_values.tolist() == (2.0 * output[0, 4:]).tolist()


# The multipliers ------------------------------------------------------------------------------------------------------

GAINS = {"proportional_gain": 0.5, "integral_gain": 0.1, "derivative_gain": 0.2, "largest_multiplier": 2.0}


def controlled(costs, limit, *, count=1.0, learnt=None, **gains):
    """Multiplier and integral after each of several rollouts, of one limit."""
    settings = numbers(limits=(limit,), counted=(1.0,), **{**GAINS, **gains})
    learnt = learnt if learnt is not None else numbers(multiplier=(0.0,), integral=(0.0,), excess=(0.0,))
    found = []
    for cost in costs:
        move_multipliers(numbers(count=count, costs=(cost,)), learnt, settings)
        found.append((learnt.multiplier[0], learnt.integral[0]))
    return np.array(found)


def test_the_multiplier_follows_by_pid_control():
    """By hand: e = (J - 10) / 10; I gains 0.1 e; the multiplier is 0.5 e + I + 0.2 max(growth of e, 0)."""
    found = controlled([15.0, 18.0, 12.0, 4.0, 10.0], 10.0)
    excess = np.array([0.5, 0.8, 0.2, -0.6, 0.0])
    integral = np.array([0.05, 0.13, 0.15, 0.09, 0.09])
    growth = np.array([0.5, 0.3, 0.0, 0.0, 0.6])
    np.testing.assert_allclose(found[:, 1], integral, atol=1e-12)
    np.testing.assert_allclose(found[:, 0], np.maximum(0.5 * excess + integral + 0.2 * growth, 0.0), atol=1e-12)
    assert found[3, 0] == 0.0  # 0.5 * -0.6 + 0.09 would be negative
    assert found[4, 0] == pytest.approx(0.09 + 0.2 * 0.6)


def test_nothing_winds_up():
    """However far the limit was exceeded, and for how long: from then on the multiplier falls as soon as it may."""
    disaster = controlled([1e6] * 1000, 10.0)
    assert disaster[0].tolist() == [0.5 + 0.1 + 0.2, 0.1]  # counts as twice the limit would
    assert disaster[-1].tolist() == [2.0, 2.0]
    assert disaster.min() >= 0.0
    assert disaster.max() <= 2.0
    safe = controlled([0.0] * 1000, 10.0)
    assert not safe.any()
    after = numbers(multiplier=(0.0,), integral=(0.0,), excess=(-1.0,))
    assert controlled([20.0], 10.0, learnt=after)[0].tolist() == [0.5 + 0.1 + 0.2 * 2.0, 0.1]


def test_without_an_episode_that_ended_nothing_moves():
    learnt = numbers(multiplier=(0.7,), integral=(0.4,), excess=(0.1,))
    assert controlled([0.0], 10.0, count=0.0, learnt=learnt)[0].tolist() == [0.7, 0.4]
    assert learnt.excess[0] == 0.1


def test_a_limit_of_zero_is_in_costs():
    assert controlled([0.25], 0.0)[0, 1] == pytest.approx(0.1 * 0.25)


def test_each_limit_has_a_multiplier_of_its_own():
    """Of three constraints the third and the first are limited, in this order."""
    settings = numbers(limits=(4.0, 10.0), counted=(0.0, 0.0, 1.0, 1.0, 0.0, 0.0), **GAINS)
    learnt = numbers(multiplier=(0.0, 0.0), integral=(0.0, 0.0), excess=(0.0, 0.0))
    move_multipliers(numbers(count=3.0, costs=(15.0, 99.0, 5.0)), learnt, settings)
    np.testing.assert_allclose(learnt.excess, [0.25, 0.5])
    np.testing.assert_allclose(learnt.multiplier, [0.8 * 0.25, 0.8 * 0.5])
