"""The scalar functions of FOCOPS against torch autograd and by hand, in plain Python."""

import numpy as np
import pytest
import torch
from scalars import call, fresh, metrics_of, numbers, stepped, stream

from velocirl import FOCOPS
from velocirl.algorithms.safe.focops import act, loss_gradient, move_multipliers
from velocirl.networks.heads import categorical, gaussian

HEADS = {"categorical": categorical(3), "gaussian": gaussian(2)}
ROWS, LIMITED = 80, ("heat", "pressure")
LEARNT = numbers(multiplier=(0.3, 1.2))
SETTINGS = numbers(
    temperature=1.5, trust_region=0.02, entropy_coefficient=0.05, normalise_advantages=0.0, value_coefficient=0.5,
    cost_value_coefficient=0.8,
)  # fmt: skip
HELD = {"rtol": 1e-8, "atol": 1e-10}


def of_torch(head, output):
    if head.name == "gaussian":
        return torch.distributions.Independent(torch.distributions.Normal(output[:, :2], output[:, 2:4].exp()), 1)
    return torch.distributions.Categorical(logits=output[:, :3])


@pytest.mark.parametrize("name", HEADS)
def test_gradient(name):
    """Of states within the trusted divergence and beyond it."""
    head = HEADS[name]
    generator, rows = np.random.default_rng(5), stepped(FOCOPS, head, ROWS, constraints=2, limited=LIMITED)
    output = generator.normal(0.0, 0.5, (ROWS, head.outputs + 3))
    for i in range(ROWS):
        act(head, output[i], rows[i], np.ones(3, np.int8), stream(i))
    np.testing.assert_array_equal(rows["old_outputs"], output[:, : head.outputs])
    np.testing.assert_array_equal(rows["cost_values"], output[:, -2:])
    for field in ("advantage", "target", "cost_targets"):
        rows[field] = generator.normal(size=rows[field].shape)
    output = output + generator.normal(0.0, 0.1 if name == "gaussian" else 0.4, output.shape)

    gradient, metrics = fresh(output), metrics_of(FOCOPS, ROWS, limited=LIMITED)
    call(
        loss_gradient, head=head, policy=output, row=rows, means=numbers(advantage=0.0, advantage_scale=0.0, rows=ROWS),
        numbers=LEARNT, settings=SETTINGS, gradient=gradient, metrics=metrics,
    )  # fmt: skip

    double = torch.tensor(output, requires_grad=True)
    policy, old = of_torch(head, double), of_torch(head, torch.tensor(rows["old_outputs"]))
    action = torch.tensor(rows["action"] if name == "gaussian" else rows["action"][:, 0])
    divergence = torch.distributions.kl_divergence(policy, old)
    trusted = (divergence <= 0.02).double().detach()
    ratio = torch.exp(policy.log_prob(action) - torch.tensor(rows["log_probability"]))
    policy_loss = trusted * (divergence - ratio * torch.tensor(rows["advantage"]) / 1.5)
    value_loss = (double[:, head.outputs] - torch.tensor(rows["target"])) ** 2 / 2
    cost_loss = ((double[:, -2:] - torch.tensor(rows["cost_targets"])) ** 2).sum(1) / 2
    loss = policy_loss + 0.5 * value_loss + 0.8 * cost_loss - 0.05 * policy.entropy()
    loss.sum().backward()
    np.testing.assert_allclose(gradient, double.grad, **HELD)
    np.testing.assert_allclose(metrics["loss"], loss.detach(), **HELD)
    np.testing.assert_allclose(metrics["approx_kl"], divergence.detach(), **HELD)
    np.testing.assert_array_equal(metrics["trusted"], trusted)
    assert 0.1 < trusted.mean() < 0.9


def test_the_multiplier_moves_by_what_episodes_cost_too_much():
    settings = numbers(limits=(10.0,), counted=(1.0, 1.0), multiplier_rate=0.01, largest_multiplier=2.0)
    learnt, found = numbers(multiplier=(0.0,)), []
    for costs in ((8.0, 5.0), (30.0, 30.0), (9.0, 0.0), (500.0, 0.0), (0.0, 0.0)):
        move_multipliers(numbers(count=2.0, costs=costs), learnt, settings)
        found.append(learnt.multiplier[0])
    assert found == pytest.approx([0.03, 0.53, 0.52, 2.0, 1.9])
    move_multipliers(numbers(count=0.0, costs=(0.0, 0.0)), learnt, settings)
    assert learnt.multiplier[0] == pytest.approx(1.9)
    for _ in range(30):
        move_multipliers(numbers(count=2.0, costs=(0.0, 0.0)), learnt, settings)
    assert learnt.multiplier[0] == 0.0
