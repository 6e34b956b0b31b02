"""A policy on a torch module, as an agent holds it: on the CPU, wherever it is trained."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import NDArray

from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.torch_network import TorchNetwork
from velocirl.training.torch_actor import TorchActor

BUFFER = "network.buffer."


class TorchPolicy:
    """A module whose parameters are one vector, which NumPy sees too."""

    def __init__(self, network: TorchNetwork) -> None:
        self._network = network
        self.network = network.module
        self.parameters: NDArray[np.float32] = network.parameters.detach().numpy()
        self.state_size = network.state_size

    def module_for(self, device: str) -> torch.nn.Module:
        """The module to train: this one on the CPU, elsewhere a copy."""
        return self.network if device == "cpu" else copy.deepcopy(self.network)

    def make_actor(
        self, head: Head, encoding: Encoding, observation_space: Space[Any], action_space: Space[Any], rng: NDArray[Any]
    ) -> TorchActor:
        """What acts outside of training."""
        return TorchActor(self._network, head, encoding, observation_space, action_space, rng)

    def buffers(self) -> dict[str, NDArray[Any]]:
        """What the module keeps beside its parameters."""
        return {BUFFER + name: array for name, array in self._network.buffers().items()}

    def load_buffers(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take those that `buffers` gave, from among others."""
        found = {name.removeprefix(BUFFER): array for name, array in arrays.items() if name.startswith(BUFFER)}
        self._network.load_buffers(found)

    def refresh(self) -> None:
        """The parameters are read where they lie."""
