"""The scalar functions of TD3+BC against torch autograd, in plain Python; those of its critics are TD3's."""

import numpy as np
import torch
from scalars import ROWS, SIZE, Critics, call, fresh, metrics_of, numbers, slope_of, transitions

from velocirl import TD3BC
from velocirl.algorithms.offline.td3_bc import actor_gradient, keep_slope, own_action, value_slope
from velocirl.networks.squashed import squashed_value

HELD = {"rtol": 1e-9, "atol": 1e-12}
ALPHA = 2.5


def test_gradient_of_the_actor_with_values_scaled_by_those_of_the_batch():
    generator, rows = transitions(TD3BC, squashed_value(SIZE, 0.0))
    rows["action"], outputs = generator.uniform(-1, 1, (ROWS, SIZE)), generator.normal(size=(ROWS, SIZE))
    critics, metrics, gradient = Critics(), metrics_of(TD3BC), fresh(outputs)
    call(own_action, actor=outputs, row=rows)
    slope = slope_of(critics, value_slope, rows, metrics)
    call(keep_slope, row=rows, new_action_slope=slope)
    means = numbers(value_size=metrics["value_size"].mean())
    call(actor_gradient, row=rows, means=means, settings=numbers(alpha=ALPHA), gradient=gradient, metrics=metrics)
    output = torch.tensor(outputs, requires_grad=True)
    action = torch.tanh(output)
    value = critics(action)[:, 0]
    behaviour = ((action - torch.tensor(rows["action"])) ** 2).mean(1)
    loss = -ALPHA / value.abs().mean().detach() * value + behaviour
    loss.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["actor_loss"], loss.detach(), **HELD)
    np.testing.assert_allclose(metrics["behaviour_loss"], behaviour.detach(), **HELD)
