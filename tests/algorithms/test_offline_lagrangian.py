"""What learners from data add to pay for costs, against torch autograd and by hand, in plain Python."""

import dataclasses

import numpy as np
import pytest
import torch
from constrained import OFTEN
from recorded import made_up
from scalars import ROWS, SIZE, Critics, call, fresh, metrics_of, numbers, transitions

from velocirl import CQLLagrangian, Dataset, IQLLagrangian, TD3BCLagrangian
from velocirl.algorithms.offline.td3_bc import actor_gradient, value_slope
from velocirl.algorithms.safe import cql_lagrangian, iql_lagrangian, td3_bc_lagrangian
from velocirl.networks.squashed import gaussian_within, squashed_value

HELD = {"rtol": 1e-9, "atol": 1e-12}
LIMITED = ("hot", "wet")
LEARNT, SETTINGS = numbers(multiplier=(0.5, 2.0)), numbers(alpha=2.5, steps_of_value=3.0)


def slope_of(module, field, rows, function, name, **given):
    """What `backward(name, into=field)` finds."""
    action = torch.tensor(rows[field], requires_grad=True)
    values = module(action)
    gradient = fresh(values)
    call(function, row=rows, gradient=gradient, **{name: values.detach().numpy()}, **given)
    values.backward(torch.tensor(gradient))
    assert action.grad is not None
    return action.grad.numpy()


def test_gradient_of_the_actor_that_pays():
    generator, rows = transitions(TD3BCLagrangian, squashed_value(SIZE, 0.0), limited=LIMITED)
    rows["action"], outputs = generator.uniform(-1, 1, (ROWS, SIZE)), generator.normal(size=(ROWS, SIZE))
    critics, costs, metrics = Critics(), Critics(), metrics_of(TD3BCLagrangian, limited=LIMITED)
    with torch.no_grad():
        for one in costs.parameters():
            one.mul_(-0.7)
    gradient = fresh(outputs)
    call(td3_bc_lagrangian.own_action, actor=outputs, row=rows)
    slope = slope_of(critics, "new_action", rows, value_slope, "critics", metrics=metrics)
    paying = {"numbers": LEARNT, "settings": SETTINGS, "metrics": metrics}
    paid_slope = slope_of(costs, "paid_action", rows, td3_bc_lagrangian.cost_slope, "cost_critics", **paying)
    slopes = {"new_action_slope": slope, "paid_action_slope": paid_slope}
    call(td3_bc_lagrangian.keep_slope, row=rows, numbers=LEARNT, **slopes)
    means = numbers(value_size=metrics["value_size"].mean())
    call(actor_gradient, row=rows, means=means, settings=SETTINGS, gradient=gradient, metrics=metrics)
    output = torch.tensor(outputs, requires_grad=True)
    action = torch.tanh(output)
    value, paid = critics(action)[:, 0], costs(action) @ torch.tensor([0.5, 2.0], dtype=torch.float64)
    scale = 2.5 / value.abs().mean().detach()
    loss = -scale * (value - paid) / 3.5 + ((action - torch.tensor(rows["action"])) ** 2).mean(1)
    loss.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["actor_loss"], loss.detach(), **HELD)
    np.testing.assert_allclose(metrics["expected_cost"], 3.0 * costs(action).detach(), **HELD)


def test_what_an_action_costs_more_than_the_policys_own_is_taken_from_its_advantage():
    _, rows = transitions(IQLLagrangian, gaussian_within(SIZE), limited=LIMITED)
    row, metrics = rows[0], metrics_of(IQLLagrangian, 1, limited=LIMITED)[0]
    row.action_value = 3.0
    costs = np.array([1.0, 0.5]), np.array([0.4, 0.1])
    iql_lagrangian.pay(np.array([2.0]), *costs, row, LEARNT, SETTINGS, metrics)
    assert row.action_value == pytest.approx(2.0 + (1.0 - 0.5 * 0.6 - 2.0 * 0.4) / 3.5)
    np.testing.assert_allclose(metrics.expected_cost, [1.2, 0.3])
    np.testing.assert_allclose(metrics.multiplier, [0.5, 2.0])


@pytest.mark.parametrize("kind", [TD3BCLagrangian, IQLLagrangian])
def test_multipliers_grow_where_data_costs_too_much(kind):
    """Half of all steps cost 1: an episode of 200 steps costs about 100."""
    environment = OFTEN["Pendulum-v1"]
    data = made_up(environment)
    common = {"data": data, "hidden": (8,), "batch_size": 32, "device": "python", "seed": 1, "multiplier_rate": 0.1,
              "gamma": 0.5, "learning_rate": 0.01, "tau": 0.3}  # fmt: skip
    strict = kind(environment, cost_limit=1.0, **common).learn(60)
    lax = kind(environment, cost_limit=1000.0, **common).learn(60)
    assert strict.metrics["train/multiplier/cost"] > 1
    assert lax.metrics["train/multiplier/cost"] == 0
    assert lax.metrics["train/expected_cost/cost"] == pytest.approx(100, rel=0.25)


def test_data_without_costs_is_refused():
    environment = OFTEN["Pendulum-v1"]
    data = made_up(environment)
    info = dataclasses.replace(data.info, constraints=())
    bare = Dataset(info, {**data.columns, "costs": np.zeros((len(data), 0), np.float32)})
    agent = TD3BCLagrangian(environment, data=bare, hidden=(8,), device="python")
    with pytest.raises(ValueError, match="the data has no costs of the constraint 'first'"):
        agent.learn(1)


@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_a_constant_cost_is_expected_in_every_step(gamma):
    """With a cost of c in each step, C = c / (1 - gamma), and an episode of 10 steps is expected to cost 10 c."""
    told = metrics_of(CQLLagrangian, 1, limited=("heat",))
    settings = numbers(steps_of_value=10 * (1.0 - gamma))
    cql_lagrangian.cost_slope(
        np.array([0.3 / (1.0 - gamma)]), numbers(multiplier=(0.0,)), settings, np.zeros(1), told[0]
    )
    assert told["expected_cost"][0, 0] == pytest.approx(3.0)
