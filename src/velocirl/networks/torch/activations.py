"""Activations in torch: modules for autograd, and operations that write into given memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velocirl.networks.activations import LEAK, activation_from

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise ImportError('velocirl.networks.torch.activations needs torch: pip install "velocirl[torch]"') from error

_MODULES: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": lambda: nn.LeakyReLU(LEAK),
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "linear": nn.Identity,
}
_aten = torch.ops.aten
# (before, value): write the activated numbers; both are the same memory if the slope does not need `before`.
ACTIVATE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "relu": lambda before, value: torch.clamp_min(before, 0.0, out=value),
    "leaky_relu": lambda before, value: _aten.leaky_relu.out(before, LEAK, out=value),
    "elu": lambda before, value: _aten.elu.out(before, out=value),
    "gelu": lambda before, value: _aten.gelu.out(before, out=value),
    "silu": lambda before, value: _aten.silu.out(before, out=value),
    "tanh": lambda before, value: torch.tanh(before, out=value),
    "sigmoid": lambda before, value: torch.sigmoid(before, out=value),
    "linear": lambda before, value: None,  # noqa: ARG005 - every activation has the same signature
}
# (delta, before, value): multiply delta by the slope, in place.
DESCEND: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "relu": lambda delta, _, value: _aten.threshold_backward.grad_input(delta, value, 0.0, grad_input=delta),
    "leaky_relu": lambda delta, _, value: _aten.leaky_relu_backward.grad_input(
        delta, value, LEAK, True, grad_input=delta
    ),
    "elu": lambda delta, _, value: _aten.elu_backward.grad_input(delta, 1.0, 1.0, 1.0, True, value, grad_input=delta),
    "gelu": lambda delta, before, _: _aten.gelu_backward.grad_input(delta, before, grad_input=delta),
    "silu": lambda delta, before, _: _aten.silu_backward.grad_input(delta, before, grad_input=delta),
    "tanh": lambda delta, _, value: _aten.tanh_backward.grad_input(delta, value, grad_input=delta),
    "sigmoid": lambda delta, _, value: _aten.sigmoid_backward.grad_input(delta, value, grad_input=delta),
    "linear": lambda delta, before, value: None,  # noqa: ARG005
}


def activation_module(name: str) -> nn.Module:
    """Return the activation of a name as a module."""
    return _MODULES[activation_from(name).name]()


def activation_of(module: nn.Module) -> str | None:
    """Return the name of an activation module, None for other modules."""
    for name in _MODULES:
        own = activation_module(name)
        if type(module) is type(own):
            settings = ("negative_slope", "alpha", "approximate")
            same = all(getattr(module, one, None) == getattr(own, one, None) for one in settings)
            return name if same else None
    return None
