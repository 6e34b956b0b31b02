"""Scalar functions of algorithms, called in plain Python for one row after the other, in double precision.

What differs from an oracle is then the formula, never rounding.
"""

from inspect import signature
from types import SimpleNamespace

import numpy as np
import torch

from velocirl.buffers.records import Act, drawn_type, narrow_type, rollout_type
from velocirl.engine import random
from velocirl.engine.records import with_attributes
from velocirl.program.fields import fields_of
from velocirl.program.several import Several, flat_names, numbers_type

ROWS, SIZE, OBSERVED = 200, 2, 3


def drawn(kind, head, count=ROWS, constraints=1, **config):
    """Transitions that were drawn, as an update of an algorithm sees them."""
    fields = fields_of(kind.Scratch, head, SimpleNamespace(**config), constraints)
    return _records(drawn_type(_act(head), fields), count)


def stepped(kind, head, count=ROWS, constraints=1, **config):
    """Steps of a rollout, as an update of an algorithm sees them."""
    fields = fields_of(kind.Scratch, head, SimpleNamespace(**config), constraints)
    return _records(narrow_type(rollout_type(1, _act(head), fields, kind.values)), count)


def metrics_of(kind, count=ROWS, **config):
    """A record of metrics for each row."""
    several = {name: one.each for name, one in kind.reports.items() if isinstance(one, Several)}
    names = [flat for name in kind.reports for flat in flat_names(name, several.get(name), SimpleNamespace(**config))]
    return _records(numbers_type(names, np.float64), count)


def numbers(**given):
    """A record of single numbers, or of several under one name: settings, means, or what is learnt."""
    kinds = [(name, np.float64, np.shape(value)) for name, value in given.items()]
    return with_attributes(np.array([tuple(given.values())], kinds))[0]


def call(function, **given):
    """Call a function for each row: of arrays that have one for each, and with everything else as it is."""
    count = max(len(one) for one in given.values() if isinstance(one, np.ndarray))
    return [
        function(**{
            name: one[i] if isinstance(one, np.ndarray) and len(one) == count else one for name, one in given.items()
        })
        for i in range(count)
    ]  # fmt: skip


class _Held(torch.autograd.Function):
    """A clamp, of which beyond a bound the gradient that leads back to it is passed on."""

    @staticmethod
    def forward(ctx, values, low, high):
        ctx.save_for_backward(values)
        ctx.bounds = low, high
        return values.clamp(low, high)

    @staticmethod
    def backward(ctx, slope):
        (values,), (low, high) = ctx.saved_tensors, ctx.bounds
        outwards = ((values < low) & (slope > 0)) | ((values > high) & (slope < 0))
        return torch.where(outwards, 0.0, slope), None, None


def held(log_deviations):
    """Logarithms of deviations within [-5, 2], as heads hold them."""
    return _Held.apply(log_deviations, -5.0, 2.0)


def fresh(rows):
    """A gradient for each row of outputs, with what nobody wrote."""
    return np.full(rows.shape, 7.0)


def stream(seed=0):
    return random.streams(seed, 1)[0]


class Critics(torch.nn.Module):
    """Two critics over [observation | action]."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layers = [
            torch.nn.Sequential(torch.nn.Linear(OBSERVED + SIZE, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
            for _ in range(2)
        ]
        self.layers = torch.nn.ModuleList(layers).double()
        self.observation = torch.tensor(np.random.default_rng(1).normal(size=(ROWS, OBSERVED)))

    def forward(self, action):
        both = torch.cat([self.observation, action], 1)
        return torch.cat([layer(both) for layer in self.layers], 1)


def slope_of(critics, value_slope, rows, metrics):
    """What `backward("critics", into="new_action")` finds."""
    action = torch.tensor(rows["new_action"], requires_grad=True)
    values = critics(action)
    gradient = fresh(values)
    more = {"row": rows} if "row" in signature(value_slope).parameters else {}
    call(value_slope, critics=values.detach().numpy(), gradient=gradient, metrics=metrics, **more)
    values.backward(torch.tensor(gradient))
    assert action.grad is not None
    return action.grad.numpy()


def transitions(kind, head, seed=2, **config):
    """Drawn transitions with weights, of which every fifth is the last of its episode; and two critics of each."""
    generator, rows = np.random.default_rng(seed), drawn(kind, head, **config)
    rows["reward"], rows["weight"] = generator.normal(size=ROWS), generator.uniform(0.2, 1, ROWS)
    rows["discount"] = np.where(np.arange(ROWS) % 5 == 0, 0.0, generator.choice([0.9, 0.9**3], ROWS))
    return generator, rows


def _act(head):
    return Act(head.action_size, head.action_dtype, head.outputs if head.masked else 0)


def _records(dtype, count):
    kinds = {name: (one.base, one.shape) for name, (one, *_) in dtype.fields.items()}
    double = [(name, np.float64 if base.kind == "f" else base, shape) for name, (base, shape) in kinds.items()]
    return with_attributes(np.zeros(count, np.dtype(double, align=True)))
