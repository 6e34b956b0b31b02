"""A policy on the native network, as an agent holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.mlp import MLP
from velocirl.training.actor import Actor


class NativePolicy:
    """A plan and its parameters; it has nothing else."""

    state_size = 0

    def __init__(self, network: MLP, generator: np.random.Generator) -> None:
        self.network = network
        self.parameters = network.initial_parameters(generator)

    def make_actor(
        self, head: Head, encoding: Encoding, observation_space: Space[Any], action_space: Space[Any], rng: NDArray[Any]
    ) -> Actor:
        """What acts outside of training."""
        return Actor(self.network, self.parameters, head, encoding, observation_space, action_space, rng)

    def buffers(self) -> dict[str, NDArray[Any]]:
        """Nothing beside the parameters."""
        return {}

    def load_buffers(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Nothing to load."""

    def refresh(self) -> None:
        """The parameters are read where they lie."""
