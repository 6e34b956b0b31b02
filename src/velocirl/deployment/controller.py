"""Controller: the exported part of a policy, from observation to action, without any training state.

    observation -> inputs of the network -> layers -> outputs -> choices and numbers -> action

An observation is its raw row (see `networks.observations`), an action the row of its entries in the order of its space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

Vector = NDArray[np.float32]


class Signal(NamedTuple):
    """One number of an observation."""

    name: str
    unit: str  # "" if unknown


@dataclass(frozen=True)
class Numbers:
    """Adjacent numbers of the observation as inputs, times a factor."""

    first: int  # index of the first in the observation
    size: int
    factor: float


@dataclass(frozen=True)
class Normalised:
    """Adjacent numbers as inputs (number - centre) * inverse_scale, optionally clipped to +-limit."""

    first: int
    centre: Vector
    inverse_scale: Vector
    limit: float | None  # None for numbers scaled by the bounds of their space

    @property
    def size(self) -> int:
        """Number of inputs."""
        return len(self.centre)


@dataclass(frozen=True)
class Code:
    """One integer as one-hot inputs: input k is 1 for the number start + k."""

    first: int
    start: int
    size: int


Input = Numbers | Normalised | Code


@dataclass(frozen=True)
class Norm:
    """Layer norm: outputs brought to mean 0 and standard deviation 1, then scaled and shifted.

    See Ba, Kiros and Hinton (2016).
    """

    scale: Vector
    shift: Vector
    epsilon: float


@dataclass(frozen=True)
class Layer:
    """Dense layer: activation(norm(weights @ inputs + biases)), with (scales * weights) for int8 weights."""

    weights: NDArray[Any]  # (outputs, inputs) float32, or int8
    biases: Vector  # (outputs,)
    activation: str  # of networks.activations; "linear" for the last layer
    norm: Norm | None = None
    scales: Vector | None = None  # (outputs,) for int8 weights

    @property
    def real_weights(self) -> Vector:
        """Weights in single precision, with scales applied."""
        return self.weights if self.scales is None else self.weights * self.scales[:, None]


@dataclass(frozen=True)
class Network:
    """Layers from the inputs to the outputs from which an action is computed."""

    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Module:
    """Torch module with more than dense layers; `described` names it, `network` runs it."""

    described: str
    network: Any  # networks.torch.network.TorchNetwork


@dataclass(frozen=True)
class Table:
    """Action values by state; integer observations are the digits of a state's number."""

    sizes: tuple[int, ...]  # of the digits, the most significant first
    starts: tuple[int, ...]  # the lowest value of each
    keys: NDArray[np.int64] | None  # (rows,) the states in ascending order; None with a row for each state
    values: NDArray[Any]  # (rows, actions); for a state without a row, all are equal

    @property
    def order(self) -> NDArray[np.int64]:
        """Actions of each row, (rows, actions), the best first; of equal ones, the first."""
        return np.argsort(-self.values, axis=1, kind="stable")


@dataclass(frozen=True)
class Choice:
    """Discrete entry of an action: start + the option with the highest output, of equal ones the first."""

    name: str
    unit: str
    column: int  # of the first option, and its index in a mask
    count: int
    start: int = 0
    columns: int = 1  # adjacent outputs whose mean is the value of an option


@dataclass(frozen=True)
class Number:
    """Continuous entry of an action: centre + reach * (the output, or its tanh, clipped to low and high)."""

    name: str
    unit: str
    column: int
    squashed: bool  # by tanh
    low: float
    high: float
    centre: float
    reach: float


@dataclass(frozen=True)
class Controller:
    """Deterministic policy."""

    environment: str
    algorithm: str
    steps: int  # training steps
    counted: str  # unit of `steps`: environment steps or, for recorded data, updates
    version: str  # velocirl's version
    observation_space: Space[Any]
    action_space: Space[Any]
    signals: tuple[Signal, ...]  # the numbers of an observation
    inputs: tuple[Input, ...]  # in the order the network reads them; none for a table
    policy: Network | Module | Table
    actions: tuple[Choice | Number, ...]
    masked: bool  # whether options can be forbidden

    @property
    def options(self) -> int:
        """Number of entries of a mask."""
        return sum(one.count for one in self.actions if isinstance(one, Choice))

    @property
    def num_inputs(self) -> int:
        """Number of inputs of the network."""
        return sum(one.size for one in self.inputs)


def layers_in(controller: Controller, wanted_by: str) -> Sequence[Layer]:
    """Return the layers of a network with dense layers only; raise for other policies, by name."""
    policy = controller.policy
    if isinstance(policy, Network):
        return policy.layers
    what = policy.described if isinstance(policy, Module) else "a table"
    raise ValueError(f"{wanted_by} needs a network of dense layers alone, and this policy is {what}")
