"""A policy on a torch module, as an agent holds it and outside of training; recurrent ones give a state back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.disk.saved import named, within
from velocirl.networks.torch.building import TorchBuilt
from velocirl.networks.torch.network import TorchNetwork
from velocirl.training.actors.acting import Acting, compiled_by
from velocirl.training.actors.actor import BUFFERS


class TorchActor(Acting):
    """Chooses actions for one observation or a batch of them."""

    def __init__(self, network: TorchNetwork, *arguments: Any) -> None:
        self._network, self._translator = network, learning_translator("policy")
        super().__init__(*arguments)

    def choose(
        self,
        observations: NDArray[Any],
        masks: NDArray[Any] | None,
        state: Any,
        episode_start: Any,
        deterministic: bool,
    ) -> tuple[Any, Any]:
        """The actions for observations (rows, *shape), and the state after them (rows, state size) or as it was."""
        self.take(observations, masks)
        self._look(0, self.count)
        before = given_state(self._network, state, episode_start, self.count)
        made, after = self._network.forward(torch.from_numpy(self._inputs), before)
        self._outputs[...] = made.numpy()
        (self._best if deterministic else self._draw)(0, self.count)
        self._write(0, self.count)
        self.stale = False
        return self.chosen(), state if after is None else after.numpy()

    def allocate(self, count: int) -> None:
        """Make rows for as many observations, and for what the network reads and gives."""
        super().allocate(count)
        self._inputs = np.zeros((count, self._network.encoding.inputs), np.float32)
        self._outputs = np.zeros((count, self._network.outputs), np.float32)
        parts = self.parts(self._inputs, self._outputs, compiled_by(self._translator))
        self._look, self._draw, self._best, self._write = parts


def given_state(network: TorchNetwork, state: Any, episode_start: Any, count: int) -> torch.Tensor | None:
    """Return the state of a recurrent network for so many observations: as given, zeros where an episode begins."""
    size = network.state_size
    if not size:
        return None
    if state is None:
        return torch.zeros(count, size)
    given = np.array(state, np.float32)
    if given.shape != (count, size):
        raise ValueError(f"the state of {count} observations has shape {(count, size)}, got {given.shape}")
    if episode_start is not None:
        given[np.broadcast_to(np.asarray(episode_start, np.bool_), count)] = 0.0
    return torch.from_numpy(given)


class ModuleReader:
    """A copy of a torch module that gives its outputs as arrays, for observations that somebody asks about."""

    def __init__(self, network: TorchNetwork) -> None:
        self._network = network.twin()
        self.state_size = network.state_size
        self.parameters_from, self.load_buffers = self._network.parameters_from, self._network.load_buffers

    def forward(self, inputs: NDArray[np.float32], state: Any = None) -> tuple[NDArray[np.float32], Any]:
        """Compute the outputs (rows, outputs) for inputs (rows, inputs); `state` is what `given_state` returned."""
        outputs, after = self._network.forward(torch.from_numpy(inputs), state)
        return outputs.numpy(), after


class TorchPolicy:
    """A module whose parameters are one vector, which NumPy sees too; learners train copies of it."""

    def __init__(self, built: TorchBuilt) -> None:
        self.built = built
        self._network = built.held
        self.network = self._network.module
        self.parameters: NDArray[np.float32] = self._network.parameters.detach().numpy()
        self.state_size = self._network.state_size

    def make_actor(self, device: str, *arguments: Any) -> TorchActor:  # noqa: ARG002 - as of a native policy
        """What acts outside of training; the arguments are those of `Acting`."""
        return TorchActor(self._network, *arguments)

    def buffers(self) -> dict[str, NDArray[Any]]:
        """What the module keeps beside its parameters."""
        return named(BUFFERS, self._network.buffers())

    def load_buffers(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take those that `buffers` gave, from among others."""
        self._network.load_buffers(within(BUFFERS, arrays))
