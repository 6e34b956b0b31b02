"""A policy with a torch module at work outside of training; recurrent ones give their state back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import NDArray

from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.engine.registers import as_rows, row
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.torch_network import TorchNetwork
from velocirl.training.acting import Acting
from velocirl.training.commands import writer_for


class TorchActor(Acting):
    """Chooses actions for one observation or a batch of them."""

    def __init__(
        self,
        network: TorchNetwork,
        head: Head,
        encoding: Encoding,
        observation_space: Space[Any],
        action_space: Space[Any],
        rng: NDArray[np.uint64],  # (1, 2)
    ) -> None:
        self._network, self._inputs_width = network, encoding.inputs
        super().__init__(head, encoding, observation_space, action_space, rng)
        translator = learning_translator("policy")
        looking: Any = look_loop(encoding)
        choosing: Any = choose_loop(head, writer_for(action_space))
        self._look = compile_loop(looking, self._looked(), translator, before=lambda: None)
        self._choose = compile_loop(choosing, (*self._chosen(), False), translator, before=lambda: None)

    def choose(
        self,
        observations: NDArray[Any],
        masks: NDArray[Any] | None,
        state: Any,
        episode_start: Any,
        deterministic: bool,
    ) -> tuple[NDArray[Any], Any]:
        """The actions for observations (rows, *shape), and the state after them (rows, state size) or as it was."""
        self.take(observations, masks)
        self._look(*self._looked())
        before = self._state(state, episode_start, len(observations))
        made, after = self._network.forward(torch.from_numpy(self._inputs), before)
        self._outputs[...] = made.numpy()
        self._choose(*self._chosen(), deterministic)
        self.stale = False
        return self.action.copy(), state if after is None else after.numpy()

    def allocate(self, count: int) -> None:
        """Make rows for as many observations, and for what the network reads and gives."""
        super().allocate(count)
        self._inputs = np.zeros((count, self._inputs_width), np.float32)
        self._outputs = np.zeros((count, self._network.outputs), np.float32)

    def _state(self, state: Any, episode_start: Any, count: int) -> torch.Tensor | None:
        size = self._network.state_size
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

    def _looked(self) -> tuple[Any, ...]:
        return self.rows[0], self.eyes, as_rows(self._inputs)

    def _chosen(self) -> tuple[Any, ...]:
        return self._outputs, *self.rows[1:], self.rng


def look_loop(encoding: Encoding) -> Any:
    """`look(observations, eyes, inputs)`: what the network reads of each observation."""
    encode = encoding.encode

    def look(observations, eyes, inputs):
        for i in range(len(observations)):
            encode(row(observations, i), eyes.centre, eyes.inverse_scale, row(inputs, i))

    return look


def choose_loop(head: Head, write: Any) -> Any:
    """`choose(outputs, masks, drawn, actions, rng, deterministic)`: an action from each output."""
    sample, mode = head.sample, head.mode

    def choose(outputs, masks, drawn, actions, rng, deterministic):
        for i in range(len(outputs)):
            if deterministic:
                mode(outputs[i], row(masks, i), row(drawn, i))
            else:
                sample(outputs[i], row(masks, i), row(rng, 0), row(drawn, i))
            write(actions, i, row(drawn, i))

    return choose
