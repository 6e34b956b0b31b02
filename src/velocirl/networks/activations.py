"""Activation functions as scalar functions: value, and slope from the quantities kept by the forward pass.

Comparisons are ordered so that a NaN passes through every value, where the NaN guard can find it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, exp, expm1, sqrt, tanh
from typing import Any, NamedTuple

from velocirl.engine.naming import nearest

LEAK = 0.01
SQRT_HALF = 0.7071067811865476
NORMAL_DENSITY_AT_ZERO = 0.3989422804014327


class Activation(NamedTuple):
    """y = value(x) and dy/dx = slope(x, y)."""

    name: str
    value: Callable[[Any], Any]
    slope: Callable[[Any, Any], Any]
    needs_input: bool  # whether the slope reads x; if it reads only y, the forward pass need not keep x
    gain: float  # factor of initial weights that preserves the size of signals from layer to layer


def activation_from(name: str) -> Activation:
    """Return the activation of a name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}{nearest(name, ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _relu(x):
    return 0.0 if x < 0.0 else x


def _relu_slope(x, y):  # noqa: ARG001 - every slope has the same signature
    return 1.0 if y > 0.0 else 0.0


def _leaky_relu(x):
    return LEAK * x if x < 0.0 else x


def _leaky_relu_slope(x, y):  # noqa: ARG001
    return 1.0 if y > 0.0 else LEAK


def _elu(x):
    return x if x > 0.0 else expm1(x)


def _elu_slope(x, y):  # noqa: ARG001
    return 1.0 if y > 0.0 else y + 1.0


def _gelu(x):
    return 0.5 * x * (1.0 + erf(SQRT_HALF * x))


def _gelu_slope(x, y):  # noqa: ARG001
    return 0.5 * (1.0 + erf(SQRT_HALF * x)) + x * (NORMAL_DENSITY_AT_ZERO * exp(-0.5 * (x * x)))


def _sigmoid(x):
    # Only the exponential of the negative side, which cannot overflow.
    small = exp(-abs(x))
    return (small if x < 0.0 else 1.0) / (1.0 + small)


def _sigmoid_slope(x, y):  # noqa: ARG001
    return y * (1.0 - y)


def _silu(x):
    return x * _sigmoid(x)


def _silu_slope(x, y):
    gate = _sigmoid(x)
    return gate + y * (1.0 - gate)


def _tanh(x):
    return tanh(x)


def _tanh_slope(x, y):  # noqa: ARG001
    return 1.0 - y * y


def _linear(x):
    return x


def _linear_slope(x, y):  # noqa: ARG001
    return 1.0


ACTIVATIONS: dict[str, Activation] = {
    activation.name: activation
    for activation in (
        Activation("relu", _relu, _relu_slope, needs_input=False, gain=sqrt(2)),
        Activation("leaky_relu", _leaky_relu, _leaky_relu_slope, needs_input=False, gain=sqrt(2 / (1 + LEAK**2))),
        Activation("elu", _elu, _elu_slope, needs_input=False, gain=sqrt(2)),
        Activation("gelu", _gelu, _gelu_slope, needs_input=True, gain=sqrt(2)),
        Activation("silu", _silu, _silu_slope, needs_input=True, gain=sqrt(2)),
        Activation("tanh", _tanh, _tanh_slope, needs_input=False, gain=5 / 3),
        Activation("sigmoid", _sigmoid, _sigmoid_slope, needs_input=False, gain=1.0),
        Activation("linear", _linear, _linear_slope, needs_input=False, gain=1.0),
    )
}
