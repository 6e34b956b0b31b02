"""The scalar functions of IQL against torch autograd and by hand, in plain Python."""

import numpy as np
import pytest
import torch
from scalars import ROWS, SIZE, call, fresh, held, metrics_of, numbers, transitions

from velocirl import IQL, DiscreteIQL
from velocirl.algorithms.offline import discrete_iql, iql
from velocirl.networks.heads import categorical
from velocirl.networks.squashed import gaussian_within

HELD = {"rtol": 1e-9, "atol": 1e-12}
SETTINGS = numbers(expectile=0.8, temperature=2.0, largest_weight=5.0)
HEADS = {IQL: gaussian_within(SIZE), DiscreteIQL: categorical(3)}


def given(kind):
    generator, rows = transitions(kind, HEADS[kind])
    count = 1 if kind is IQL else 3
    if kind is IQL:
        rows["action"] = generator.uniform(-1, 1, (ROWS, SIZE))
    else:
        rows["action"][:, 0] = generator.integers(0, 3, ROWS)
    return generator, rows, generator.normal(size=(ROWS, 2 * count)), generator.normal(size=(ROWS, 1))


def of_actions(values, rows):
    """The two values of the actions that were taken, of critics with a column for each or for one alone."""
    if values.shape[1] == 2:
        return values
    chosen = torch.tensor(rows["action"][:, :1].astype(np.int64))
    return torch.cat([values[:, :3].gather(1, chosen), values[:, 3:].gather(1, chosen)], 1)


def weights_of(kind, rows):
    """Those of priorities, which only what may learn from steps has."""
    return torch.tensor(rows["weight"] if kind is IQL else np.ones(ROWS))


def with_head(function, kind, **arguments):
    call(function, **({} if kind is IQL else {"head": HEADS[kind]}), **arguments)


@pytest.mark.parametrize(("kind", "module"), [(IQL, iql), (DiscreteIQL, discrete_iql)])
def test_gradient_of_the_value(kind, module):
    _, rows, targets, values = given(kind)
    gradient, metrics = fresh(values), metrics_of(kind)
    with_head(
        module.value_gradient, kind, target_critics=targets, value=values, row=rows, settings=SETTINGS,
        gradient=gradient, metrics=metrics,
    )  # fmt: skip
    value = torch.tensor(values, requires_grad=True)
    difference = of_actions(torch.tensor(targets), rows).min(1).values - value[:, 0]
    losses = weights_of(kind, rows) * torch.tensor(np.where(difference.detach() > 0, 0.8, 0.2)) * difference**2
    losses.sum().backward()
    np.testing.assert_allclose(gradient, value.grad, **HELD)
    np.testing.assert_allclose(metrics["value_loss"], losses.detach(), **HELD)
    np.testing.assert_allclose(rows["action_value"], of_actions(torch.tensor(targets), rows).min(1).values, **HELD)


def log_probabilities(kind, output, rows):
    if kind is DiscreteIQL:
        return torch.distributions.Categorical(logits=output).log_prob(torch.tensor(rows["action"][:, 0]))
    normal = torch.distributions.Normal(torch.tanh(output[:, :SIZE]), held(output[:, SIZE:]).exp())
    return normal.log_prob(torch.tensor(rows["action"])).sum(1)


@pytest.mark.parametrize(("kind", "module"), [(IQL, iql), (DiscreteIQL, discrete_iql)])
def test_gradient_of_the_actor(kind, module):
    """Weights are constants, and limited; deviations beyond their bounds move back alone."""
    generator, rows, _, values = given(kind)
    rows["action_value"] = generator.normal(size=ROWS)
    outputs = generator.normal(size=(ROWS, HEADS[kind].outputs))
    if kind is IQL:
        outputs[::10, SIZE], outputs[1::10, SIZE] = 2.5, -5.5
    gradient, metrics = fresh(outputs), metrics_of(kind)
    with_head(
        module.actor_gradient, kind, actor=outputs, value=values, row=rows, settings=SETTINGS, gradient=gradient,
        metrics=metrics,
    )  # fmt: skip
    output = torch.tensor(outputs, requires_grad=True)
    weight = np.minimum(np.exp(2.0 * (rows["action_value"] - values[:, 0])), 5.0)
    assert (weight == 5.0).any()
    weight *= weights_of(kind, rows).numpy()
    losses = -torch.tensor(weight) * log_probabilities(kind, output, rows)
    losses.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["actor_loss"], losses.detach(), **HELD)
    np.testing.assert_allclose(metrics["weight"], weight, **HELD)


@pytest.mark.parametrize(("kind", "module"), [(IQL, iql), (DiscreteIQL, discrete_iql)])
def test_gradient_of_the_critics(kind, module):
    """The value of the next state follows, and nothing after a terminal one."""
    _, rows, critics, following = given(kind)
    goal = rows["reward"] + rows["discount"] * following[:, 0]
    following[rows["discount"] == 0], gradient, metrics = np.inf, fresh(critics), metrics_of(kind)
    with_head(
        module.critic_gradient, kind, critics=critics, next_value=following, row=rows, gradient=gradient,
        metrics=metrics,
    )  # fmt: skip
    output = torch.tensor(critics, requires_grad=True)
    losses = weights_of(kind, rows) * ((of_actions(output, rows) - torch.tensor(goal)[:, None]) ** 2).sum(1) / 2
    losses.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["critic_loss"], losses.detach(), **HELD)


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.9])
def test_the_expectile_of_numbers_is_where_the_slopes_cancel(expectile):
    """Of 0, 1 and 4: where expectile times what lies above is 1 - expectile times what lies below."""
    numbers = np.array([0.0, 1.0, 4.0])

    def slope(value):
        return sum(iql.expectile_slope(one - value, expectile) for one in numbers)

    low, high = 0.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    by_hand = {0.5: 5 / 3, 0.7: (4 * 0.7) / (0.7 + 2 * 0.3) + 0.3 / (0.7 + 2 * 0.3), 0.9: 4 * 0.9 / 1.1 + 0.1 / 1.1}
    assert low == pytest.approx(by_hand[expectile], abs=1e-9)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_weight_is_limited_and_passes_a_nan_on():
    assert iql.weight_of(0.0, SETTINGS) == 1.0
    assert iql.weight_of(1e9, SETTINGS) == 5.0
    assert iql.weight_of(-1e9, SETTINGS) == 0.0
    assert np.isnan(iql.weight_of(np.nan, SETTINGS))
