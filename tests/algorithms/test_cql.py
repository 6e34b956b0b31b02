"""The scalar functions of CQL against torch autograd and by hand, in plain Python."""

from math import log

import numpy as np
import pytest
import torch
from scalars import ROWS, SIZE, call, fresh, metrics_of, numbers, stream, transitions

from velocirl import CQL, DiscreteCQL
from velocirl.algorithms.offline import cql, discrete_cql
from velocirl.algorithms.online.dqn import loss_gradient
from velocirl.networks.heads import epsilon_greedy
from velocirl.networks.squashed import squashed_gaussian

HELD = {"rtol": 1e-9, "atol": 1e-12}
HEAD, SAMPLES, WEIGHT = squashed_gaussian(SIZE), 3, 1.5
SETTINGS = numbers(samples=SAMPLES, conservatism=WEIGHT)


def candidates():
    """Rows with actions of each kind, and the outputs that they were drawn by."""
    generator, rows = transitions(CQL, HEAD, tried=3 * SAMPLES)
    own, following = generator.normal(size=(2, ROWS, 2 * SIZE))
    call(cql.draw_random_and_next, actor=following, row=rows, settings=SETTINGS, rng=stream())
    call(cql.draw_own, actor=own, row=rows, settings=SETTINGS, rng=stream(1))
    return generator, rows, own, following


def test_candidates_have_the_densities_by_which_they_were_drawn():
    _, rows, own, following = candidates()
    uniform, drawn_next, drawn_own = np.split(rows["candidates"], 3, axis=1)
    densities = np.split(rows["densities"], 3, axis=1)
    np.testing.assert_allclose(densities[0], np.log(0.5))
    assert np.abs(uniform).max() <= 1
    assert uniform.std() == pytest.approx(3**-0.5, rel=0.05)
    for actions, density, output in ((drawn_next, densities[1], following), (drawn_own, densities[2], own)):
        before = torch.atanh(torch.tensor(actions))
        mean, deviation = (torch.tensor(one)[:, None] for one in np.split(output, 2, axis=1))
        normal = torch.distributions.Normal(mean, deviation.clamp(-20, 2).exp()).log_prob(before)
        expected = normal - torch.log(1 - torch.tensor(actions) ** 2)
        sane = np.abs(actions) < 0.999  # beyond, atanh loses the digits
        np.testing.assert_allclose(density[sane], expected.numpy()[sane], rtol=1e-4, atol=1e-4)


def test_gradient_of_the_critics():
    """Both parts of the gap: up for the data's action, down for all that were tried, by their importance."""
    generator, rows, _, _ = candidates()
    values, targets = generator.normal(size=(2, ROWS, 2))
    tried = generator.normal(size=(ROWS, 3 * SAMPLES, 2))
    goal = rows["reward"] + rows["discount"] * targets.min(1)
    targets[rows["discount"] == 0] = np.inf
    gradient, tried_gradient, metrics = fresh(values), fresh(tried), metrics_of(CQL)
    call(
        cql.critic_gradient, critics=values, target_critics=targets, row=rows, settings=SETTINGS, gradient=gradient,
        metrics=metrics,
    )  # fmt: skip
    call(
        cql.conservative_gradient, candidate_values=tried, row=rows, settings=SETTINGS, gradient=tried_gradient,
        metrics=metrics,
    )  # fmt: skip
    output, others = torch.tensor(values, requires_grad=True), torch.tensor(tried, requires_grad=True)
    density = torch.tensor(rows["densities"].sum(2))[:, :, None]
    gap = torch.logsumexp(others - density, 1) - log(3 * SAMPLES) - output
    weights = torch.tensor(rows["weight"])
    errors = weights * ((output - torch.tensor(goal)[:, None]) ** 2).sum(1) / 2
    (errors + weights * WEIGHT * gap.sum(1)).sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(tried_gradient, others.grad, **HELD)
    np.testing.assert_allclose(metrics["critic_loss"], errors.detach(), **HELD)
    np.testing.assert_allclose(metrics["gap"], gap.mean(1).detach(), **HELD)


def test_the_mean_over_candidates_is_the_integral_whatever_they_were_drawn_by():
    """Of values that are 0 everywhere: log of the area of all actions, 2 for each number."""
    _, rows, _, _ = candidates()
    metrics, tried = metrics_of(CQL), np.zeros((ROWS, 3 * SAMPLES, 2))
    call(
        cql.conservative_gradient, candidate_values=tried, row=rows, settings=SETTINGS, gradient=fresh(tried),
        metrics=metrics,
    )  # fmt: skip
    assert np.log(np.mean(np.exp(metrics["gap"]))) == pytest.approx(SIZE * log(2), abs=0.35)


@pytest.mark.parametrize("dueling", [0.0, 1.0])
def test_gradient_of_the_discrete_loss(dueling):
    """The gap of values is that of advantages: what all of them share does not count."""
    head = epsilon_greedy(3, False, 0.0)
    settings = numbers(dueling=dueling, huber=0.0, conservatism=WEIGHT)
    generator, rows = transitions(DiscreteCQL, head)
    rows["action"][:, 0], rows["next_action"] = generator.integers(0, 3, (2, ROWS))
    values, targets = generator.normal(size=(2, ROWS, 3 + int(dueling)))
    gradient, metrics = fresh(values), metrics_of(DiscreteCQL)
    call(
        loss_gradient, head=head, values=values, target_values=targets, row=rows, settings=settings, gradient=gradient,
        metrics=metrics,
    )  # fmt: skip
    call(
        discrete_cql.conservative_gradient, head=head, values=values, row=rows, settings=settings, gradient=gradient,
        metrics=metrics,
    )  # fmt: skip

    def read(columns):
        if not dueling:
            return columns
        return columns[:, 3:] + columns[:, :3] - columns[:, :3].mean(1, keepdim=True)

    output, chosen = torch.tensor(values, requires_grad=True), torch.tensor(rows["action"].astype(np.int64))
    following = read(torch.tensor(targets)).gather(1, torch.tensor(rows["next_action"].astype(np.int64))[:, None])[:, 0]
    goal = torch.tensor(rows["reward"]) + torch.tensor(rows["discount"]) * following
    taken = read(output).gather(1, chosen)[:, 0]
    gap = torch.logsumexp(read(output), 1) - taken
    (torch.tensor(rows["weight"]) * (taken - goal) ** 2 / 2 + WEIGHT * gap).sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["gap"], gap.detach(), **HELD)
