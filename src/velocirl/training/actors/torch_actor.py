"""Policies on a torch module: their parameters and buffers, and acting outside of training with recurrent state."""

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
    """Actor on a torch module: chooses actions for one observation or a batch."""

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
        """Choose actions for observations (rows, *shape).

        Returns the actions and the next state (rows, state size), or `state` unchanged if the network is not recurrent.
        """
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
        """Allocate rows for `count` observations, network inputs and network outputs."""
        super().allocate(count)
        self._inputs = np.zeros((count, self._network.encoding.inputs), np.float32)
        self._outputs = np.zeros((count, self._network.outputs), np.float32)
        parts = self.parts(self._inputs, self._outputs, compiled_by(self._translator))
        self._look, self._draw, self._best, self._write = parts


def given_state(network: TorchNetwork, state: Any, episode_start: Any, count: int) -> torch.Tensor | None:
    """Return the state (count, state size) of a recurrent network, or None for other networks.

    The state is zero without a given `state` and where `episode_start` is True.
    """
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
    """Copy of a torch module that computes outputs as NumPy arrays, for estimates."""

    def __init__(self, network: TorchNetwork) -> None:
        self._network = network.twin()
        self.state_size = network.state_size
        self.parameters_from, self.load_buffers = self._network.parameters_from, self._network.load_buffers

    def forward(self, inputs: NDArray[np.float32], state: Any = None) -> tuple[NDArray[np.float32], Any]:
        """Compute the outputs (rows, outputs) for inputs (rows, inputs); `state` is what `given_state` returned."""
        outputs, after = self._network.forward(torch.from_numpy(inputs), state)
        return outputs.numpy(), after


class TorchPolicy:
    """Policy on a torch module; its parameters are one vector shared with NumPy, and learners train copies of it."""

    def __init__(self, built: TorchBuilt) -> None:
        self.built = built
        self._network = built.held
        self.network = self._network.module
        self.parameters: NDArray[np.float32] = self._network.parameters.detach().numpy()
        self.state_size = self._network.state_size

    def make_actor(self, device: str, *arguments: Any) -> TorchActor:  # noqa: ARG002 - as of a native policy
        """Return an actor for use outside of training; `arguments` are the arguments of `Acting`."""
        return TorchActor(self._network, *arguments)

    def buffers(self) -> dict[str, NDArray[Any]]:
        """Return the module's buffers, by name."""
        return named(BUFFERS, self._network.buffers())

    def load_buffers(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load the buffers named as by `buffers`; other arrays are ignored."""
        self._network.load_buffers(within(BUFFERS, arrays))
