"""The scalar functions of behavioural cloning against torch autograd, in plain Python, and what it converges to."""

import numpy as np
import torch
from scalars import ROWS, SIZE, call, fresh, metrics_of, transitions

from velocirl import BC, DiscreteBC
from velocirl.algorithms.offline import bc, discrete_bc
from velocirl.networks.heads import categorical
from velocirl.networks.squashed import squashed_value

HELD = {"rtol": 1e-9, "atol": 1e-12}


def test_gradient_of_regression():
    generator, rows = transitions(BC, squashed_value(SIZE, 0.0))
    rows["action"], outputs = generator.uniform(-1, 1, (ROWS, SIZE)), generator.normal(size=(ROWS, SIZE))
    gradient, metrics = fresh(outputs), metrics_of(BC)
    call(bc.imitation_gradient, actor=outputs, row=rows, gradient=gradient, metrics=metrics)
    output = torch.tensor(outputs, requires_grad=True)
    losses = ((torch.tanh(output) - torch.tensor(rows["action"])) ** 2).mean(1)
    losses.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["loss"], losses.detach(), **HELD)


def test_gradient_of_classification():
    head = categorical(3)
    generator, rows = transitions(DiscreteBC, head)
    rows["action"][:, 0], outputs = generator.integers(0, 3, ROWS), generator.normal(size=(ROWS, 3))
    gradient, metrics = fresh(outputs), metrics_of(DiscreteBC)
    call(discrete_bc.imitation_gradient, head=head, actor=outputs, row=rows, gradient=gradient, metrics=metrics)
    output = torch.tensor(outputs, requires_grad=True)
    chosen = torch.tensor(rows["action"][:, 0].astype(np.int64))
    losses = torch.nn.functional.cross_entropy(output, chosen, reduction="none")
    losses.sum().backward()
    np.testing.assert_allclose(gradient, output.grad, **HELD)
    np.testing.assert_allclose(metrics["loss"], losses.detach(), **HELD)
