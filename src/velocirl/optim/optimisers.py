"""Optimizers as scalar rules: one step of one parameter, for any loop over a flat vector to call.

A rule has two parts. `prepare(settings, learning_rate, step, factors)` runs once per step, counted from 1, and writes
the values shared by all parameters into `factors`. `apply(parameters, gradient, moments, i, factors)` updates parameter
i and its moments from `gradient`, one number, averaged and clipped. Hyperparameters are arguments, not constants, so
that changing one does not recompile. They are float64, because 1 - beta ** step loses all its digits in single
precision. `apply` has no branches, so that a loop over it is vectorized.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.calls import parse
from velocirl.optim.parsing import build, describe, require

FACTORS = 8  # the length of the float32 array that `prepare` fills


class Rule(NamedTuple):
    """Two scalar functions of an optimizer."""

    prepare: Callable[..., Any]
    apply: Callable[..., Any]


class Optimiser(ABC):
    """Description of an optimizer: hyperparameters and a rule, without any state."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of state vectors, the rows of `moments`."""

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """Scalar functions of a step."""

    @abstractmethod
    def settings(self) -> NDArray[np.float64]:
        """Return the hyperparameters in the order in which the rule reads them."""

    @property
    def without_decay(self) -> Optimiser:
        """The optimizer without weight decay, for temperatures and free standard deviations."""
        return self

    def __str__(self) -> str:
        return describe(self, self.name)


def prepare_adam(settings, learning_rate, step, factors):
    beta1, beta2, epsilon, weight_decay = settings[0], settings[1], settings[2], settings[3]
    # lr * (m / c1) / (sqrt(v / c2) + epsilon) with the corrections c1 and c2 moved out of the loop.
    correction = sqrt(1.0 - beta2**step)
    factors[0] = 1.0 - beta1
    factors[1] = beta2
    factors[2] = 1.0 - beta2
    factors[3] = learning_rate * correction / (1.0 - beta1**step)
    factors[4] = epsilon * correction
    factors[5] = 1.0 - learning_rate * weight_decay


def apply_adam(parameters, gradient, moments, i, factors):
    mean = moments[0, i] + factors[0] * (gradient - moments[0, i])
    square = factors[1] * moments[1, i] + factors[2] * (gradient * gradient)
    moments[0, i] = mean
    moments[1, i] = square
    parameters[i] = factors[5] * parameters[i] - factors[3] * mean / (sqrt(square) + factors[4])


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam (Kingma and Ba, 2015); epsilon is 1e-5, as in PPO and A2C implementations, whereas torch has 1e-8."""

    name: ClassVar[str] = "adam"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        require(self, "beta1", 0 <= self.beta1 < 1, "at least 0 and below 1")
        require(self, "beta2", 0 <= self.beta2 < 1, "at least 0 and below 1")
        _require_epsilon(self, self.epsilon)

    @property
    def slots(self) -> int:
        """Two: the running means of the gradient and of its square."""
        return 2

    @property
    def rule(self) -> Rule:
        """Adam's rule, with decoupled weight decay."""
        return Rule(prepare_adam, apply_adam)

    def settings(self) -> NDArray[np.float64]:
        """Return beta1, beta2, epsilon, and no weight decay."""
        return np.array([self.beta1, self.beta2, self.epsilon, 0.0])


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    name: ClassVar[str] = "adamw"
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "weight_decay", 0 <= self.weight_decay < inf, "at least 0 and finite")

    @property
    def without_decay(self) -> Optimiser:
        """The optimizer with a weight decay of 0."""
        return replace(self, weight_decay=0.0)

    def settings(self) -> NDArray[np.float64]:
        """Return beta1, beta2, epsilon, weight decay."""
        return np.array([self.beta1, self.beta2, self.epsilon, self.weight_decay])


def prepare_sgd(settings, learning_rate, step, factors):  # noqa: ARG001 - every rule has the same arguments
    momentum, nesterov, weight_decay = settings[0], settings[1], settings[2]
    factors[0] = momentum
    factors[1] = weight_decay
    # The direction is the velocity or, with Nesterov, the gradient plus the velocity one step ahead.
    factors[2] = learning_rate * nesterov
    factors[3] = learning_rate * (1.0 + nesterov * (momentum - 1.0))


def apply_sgd(parameters, gradient, moments, i, factors):  # noqa: ARG001
    parameters[i] -= factors[3] * (gradient + factors[1] * parameters[i])


def apply_sgd_with_momentum(parameters, gradient, moments, i, factors):
    decayed = gradient + factors[1] * parameters[i]
    velocity = factors[0] * moments[0, i] + decayed
    moments[0, i] = velocity
    parameters[i] -= factors[2] * decayed + factors[3] * velocity


@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent, with optional momentum, also Nesterov's; weight decay is an L2 penalty."""

    name: ClassVar[str] = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        require(self, "momentum", 0 <= self.momentum < 1, "at least 0 and below 1")
        require(self, "nesterov", not self.nesterov or self.momentum > 0, "False where there is no momentum")
        require(self, "weight_decay", 0 <= self.weight_decay < inf, "at least 0 and finite")

    @property
    def slots(self) -> int:
        """One with momentum, for the velocity; else none."""
        return 1 if self.momentum else 0

    @property
    def rule(self) -> Rule:
        """Rule with or without a velocity."""
        return Rule(prepare_sgd, apply_sgd_with_momentum if self.momentum else apply_sgd)

    @property
    def without_decay(self) -> Optimiser:
        """The optimizer with a weight decay of 0."""
        return replace(self, weight_decay=0.0)

    def settings(self) -> NDArray[np.float64]:
        """Return momentum, whether it is Nesterov's, and weight decay."""
        return np.array([self.momentum, float(self.nesterov), self.weight_decay])


def prepare_rmsprop(settings, learning_rate, step, factors):  # noqa: ARG001
    alpha, epsilon, momentum = settings[0], settings[1], settings[2]
    factors[0] = alpha
    factors[1] = 1.0 - alpha
    factors[2] = epsilon
    factors[3] = momentum
    factors[4] = learning_rate


def apply_rmsprop(parameters, gradient, moments, i, factors):
    square = factors[0] * moments[0, i] + factors[1] * (gradient * gradient)
    moments[0, i] = square
    parameters[i] -= factors[4] * (gradient / (sqrt(square) + factors[2]))


def apply_rmsprop_with_momentum(parameters, gradient, moments, i, factors):
    square = factors[0] * moments[0, i] + factors[1] * (gradient * gradient)
    velocity = factors[3] * moments[1, i] + gradient / (sqrt(square) + factors[2])
    moments[0, i] = square
    moments[1, i] = velocity
    parameters[i] -= factors[4] * velocity


@dataclass(frozen=True)
class RMSProp(Optimiser):
    """RMSProp (Hinton, 2012) with optional momentum; epsilon is outside the square root, as in torch."""

    name: ClassVar[str] = "rmsprop"
    alpha: float = 0.99
    epsilon: float = 1e-5
    momentum: float = 0.0

    def __post_init__(self) -> None:
        require(self, "alpha", 0 <= self.alpha < 1, "at least 0 and below 1")
        _require_epsilon(self, self.epsilon)
        require(self, "momentum", 0 <= self.momentum < 1, "at least 0 and below 1")

    @property
    def slots(self) -> int:
        """The running mean of the squared gradient and, with momentum, the velocity."""
        return 2 if self.momentum else 1

    @property
    def rule(self) -> Rule:
        """Rule with or without a velocity."""
        return Rule(prepare_rmsprop, apply_rmsprop_with_momentum if self.momentum else apply_rmsprop)

    def settings(self) -> NDArray[np.float64]:
        """Return alpha, epsilon, momentum."""
        return np.array([self.alpha, self.epsilon, self.momentum])


OPTIMISERS: dict[str, type[Optimiser]] = {kind.name: kind for kind in (Adam, AdamW, SGD, RMSProp)}


def optimiser_from(text: str | Optimiser) -> Optimiser:
    """Return the optimizer of a text, `adamw(weight_decay=0.01)`; an optimizer is returned as it is."""
    if isinstance(text, Optimiser):
        return text
    calls = parse(text, "optimiser")
    if len(calls) > 1:
        raise ValueError(f"{text!r} names {len(calls)} optimisers: write one, as in 'adam(beta2=0.99)'")
    return build(calls[0], OPTIMISERS, "optimiser")


def _require_epsilon(instance: Optimiser, epsilon: float) -> None:
    # In single precision a smaller epsilon may vanish, and a parameter whose gradient is 0 would become NaN.
    require(instance, "epsilon", 1e-30 <= epsilon < inf, "at least 1e-30 and finite")
