"""What makes an action of an observation, apart from all that trained it: what every exported file says.

    observation -> inputs of the network -> layers -> outputs -> choices and numbers -> action

An observation is its raw row (see `networks.observations`), an action the row of its entries in the order of its
space.
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
    unit: str  # "" where nobody says


@dataclass(frozen=True)
class Numbers:
    """Neighbouring numbers of the observation that are inputs, times a factor."""

    first: int  # place of the first in the observation
    size: int
    factor: float


@dataclass(frozen=True)
class Normalised:
    """Neighbouring numbers as inputs (number - centre) * inverse_scale, clipped to +-limit where there is one."""

    first: int
    centre: Vector
    inverse_scale: Vector
    limit: float | None  # None of numbers that are scaled by the bounds of their space

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.centre)


@dataclass(frozen=True)
class Code:
    """One whole number as inputs of which one is 1: input k for the number start + k."""

    first: int
    start: int
    size: int


Input = Numbers | Normalised | Code


@dataclass(frozen=True)
class Norm:
    """Outputs of a layer brought to mean 0 and deviation 1, then scaled and shifted (Ba, Kiros and Hinton, 2016)."""

    scale: Vector
    shift: Vector
    epsilon: float


@dataclass(frozen=True)
class Layer:
    """activation(norm(weights @ inputs + biases)); of whole weights, (scales * weights) in their place."""

    weights: NDArray[Any]  # (outputs, inputs) float32, or int8
    biases: Vector  # (outputs,)
    activation: str  # of networks.activations; "linear" of the last one
    norm: Norm | None = None
    scales: Vector | None = None  # (outputs,) where weights are int8

    @property
    def real_weights(self) -> Vector:
        """The weights as they count."""
        return self.weights if self.scales is None else self.weights * self.scales[:, None]


@dataclass(frozen=True)
class Network:
    """Layers from the inputs to the outputs that an action is made of."""

    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Module:
    """A torch module that is more than layers; `described` says what it is, `network` runs it."""

    described: str
    network: Any  # networks.torch.network.TorchNetwork


@dataclass(frozen=True)
class Table:
    """Values of actions by states; observations of whole numbers are the digits of a state's number."""

    sizes: tuple[int, ...]  # of the digits, the first counting most
    starts: tuple[int, ...]  # the least value of each
    keys: NDArray[np.int64] | None  # (rows,) the states in ascending order; None where there is a row for each state
    values: NDArray[Any]  # (rows, actions); of a state without a row, all are equal

    @property
    def order(self) -> NDArray[np.int64]:
        """The actions of each row, (rows, actions), the best first; of equal ones, the first."""
        return np.argsort(-self.values, axis=1, kind="stable")


@dataclass(frozen=True)
class Choice:
    """An entry of an action: start + the option of the highest output, of equal ones the first."""

    name: str
    unit: str
    column: int  # of the first option, and its place in a mask
    count: int
    start: int = 0
    columns: int = 1  # neighbouring outputs whose mean counts for an option


@dataclass(frozen=True)
class Number:
    """An entry of an action: centre + reach * (the output, or its tangent, held within low and high)."""

    name: str
    unit: str
    column: int
    squashed: bool  # by the hyperbolic tangent
    low: float
    high: float
    centre: float
    reach: float


@dataclass(frozen=True)
class Controller:
    """A policy that acts without chance."""

    environment: str
    algorithm: str
    steps: int  # it was trained for,
    counted: str  # which are steps of an environment or, of recorded data, updates
    version: str  # of velocirl
    observation_space: Space[Any]
    action_space: Space[Any]
    signals: tuple[Signal, ...]  # the numbers of an observation
    inputs: tuple[Input, ...]  # in the order in which the network reads them; none of a table
    policy: Network | Module | Table
    actions: tuple[Choice | Number, ...]
    masked: bool  # whether options can be forbidden

    @property
    def options(self) -> int:
        """Entries of a mask."""
        return sum(one.count for one in self.actions if isinstance(one, Choice))

    @property
    def num_inputs(self) -> int:
        """Numbers that the network reads."""
        return sum(one.size for one in self.inputs)


def layers_in(controller: Controller, wanted_by: str) -> Sequence[Layer]:
    """The layers of a network that is nothing but layers; another is refused by its name."""
    policy = controller.policy
    if isinstance(policy, Network):
        return policy.layers
    what = policy.described if isinstance(policy, Module) else "a table"
    raise ValueError(f"{wanted_by} needs a network of dense layers alone, and this policy is {what}")
