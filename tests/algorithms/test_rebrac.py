"""The scalar functions of ReBRAC against torch autograd, in plain Python, and the data's next action."""

import numpy as np
import torch
from recorded import made_up
from scalars import ROWS, SIZE, Critics, call, fresh, metrics_of, numbers, slope_of, transitions

from velocirl import ReBRAC
from velocirl.algorithms.offline.rebrac import actor_gradient, critic_gradient, keep_slope, own_action, value_slope
from velocirl.networks.squashed import squashed_value

HELD = {"rtol": 1e-9, "atol": 1e-12}
SETTINGS = numbers(actor_penalty=0.3, critic_penalty=0.7)


def given():
    generator, rows = transitions(ReBRAC, squashed_value(SIZE, 0.0))
    for name in ("action", "next_action", "target_action"):
        rows[name] = generator.uniform(-1, 1, (ROWS, SIZE))
    rows["has_next"] = generator.integers(0, 2, ROWS)
    return generator, rows


def test_gradient_of_the_actor_with_values_scaled_by_those_of_the_batch():
    generator, rows = given()
    outputs = generator.normal(size=(ROWS, SIZE))
    critics, metrics, gradient = Critics(), metrics_of(ReBRAC), fresh(outputs)
    call(own_action, actor=outputs, row=rows)
    slope = slope_of(critics, value_slope, rows, metrics)
    call(keep_slope, row=rows, new_action_slope=slope)
    means = numbers(value_size=metrics["value_size"].mean())
    call(actor_gradient, row=rows, means=means, settings=SETTINGS, gradient=gradient, metrics=metrics)
    output = torch.tensor(outputs, requires_grad=True)
    action = torch.tanh(output)
    value = critics(action).min(1).values
    distance = ((action - torch.tensor(rows["action"])) ** 2).sum(1)
    loss = -value / value.abs().mean().detach() + 0.3 * distance
    loss.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["actor_loss"], loss.detach(), **HELD)


def test_gradient_of_the_critics():
    """What the data did next counts where it is known, and nothing after a terminal state."""
    generator, rows = given()
    values, targets = generator.normal(size=(2, ROWS, 2))
    distance = ((rows["target_action"] - rows["next_action"]) ** 2).sum(1) * rows["has_next"]
    goal = rows["reward"] + rows["discount"] * (targets.min(1) - 0.7 * distance)
    targets[rows["discount"] == 0], gradient, metrics = np.inf, fresh(values), metrics_of(ReBRAC)
    call(
        critic_gradient, critics=values, target_critics=targets, row=rows, settings=SETTINGS, gradient=gradient,
        metrics=metrics,
    )  # fmt: skip
    output = torch.tensor(values, requires_grad=True)
    losses = ((output - torch.tensor(goal)[:, None]) ** 2).sum(1) / 2
    losses.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["critic_loss"], losses.detach(), **HELD)


def test_a_row_has_the_action_after_it():
    data = made_up("Pendulum-v1", episodes=3, length=4)
    agent = ReBRAC(data=data, hidden=(8,), batch_size=64, device="python", seed=1).learn(1)
    ring = agent.learner.ring
    places, rows = ring.drawn.places, ring.drawn.rows
    last = places % 4 == 3
    np.testing.assert_array_equal(rows["has_next"], ~last)
    np.testing.assert_array_equal(rows["next_action"][last], 0)
    np.testing.assert_allclose(2 * rows["next_action"][~last], data.actions[places[~last] + 1], rtol=1e-6)
    np.testing.assert_array_equal(rows["discount"] == 0, places % 8 == 3)  # every second episode is cut off
