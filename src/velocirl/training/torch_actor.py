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
from velocirl.networks.observations import raw_space
from velocirl.networks.torch_network import TorchNetwork
from velocirl.training.collecting import Eyes
from velocirl.training.commands import writer_for
from velocirl.training.normalising import RunningMoments


class TorchActor:
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
        self.stale = True  # whether the normaliser is new since the last choice
        self._network, self._head, self._encoding = network, head, encoding
        self._action_space = action_space
        self._row_shape, self._row_dtype = raw_space(observation_space)
        self._rng = as_rows(rng)
        self._eyes = Eyes(*(np.zeros(encoding.inputs, np.float32) for _ in Eyes._fields))
        self._buffers(1)
        translator = learning_translator("policy")
        looking: Any = look_loop(encoding)
        choosing: Any = choose_loop(head, writer_for(action_space))
        self._look = compile_loop(looking, self._looked(), translator, before=lambda: None)
        self._choose = compile_loop(choosing, (*self._chosen(), False), translator, before=lambda: None)

    def look_through(self, moments: RunningMoments) -> None:
        """Normalise observations so from now on."""
        self._eyes.centre[:], self._eyes.inverse_scale[:] = moments.mean, moments.inverse_deviation

    def choose(
        self,
        observations: NDArray[Any],
        masks: NDArray[Any] | None,
        state: Any,
        episode_start: Any,
        deterministic: bool,
    ) -> tuple[NDArray[Any], Any]:
        """The actions for observations (rows, *shape), and the state after them (rows, state size) or as it was."""
        count = len(observations)
        if count != len(self._observation):
            self._buffers(count)
        self._observation[...] = observations
        if masks is not None and (not self._head.masked or masks.shape != self._mask.shape):
            wanted = f"have shape {self._mask.shape}" if self._head.masked else "are not for this policy"
            raise ValueError(f"action masks of {count} observations {wanted}, got {masks.shape}")
        self._mask[...] = 1 if masks is None else masks
        self._look(*self._looked())
        before = self._state(state, episode_start, count)
        made, after = self._network.forward(torch.from_numpy(self._inputs), before)
        self._outputs[...] = made.numpy()
        self._choose(*self._chosen(), deterministic)
        self.stale = False
        return self._action.copy(), state if after is None else after.numpy()

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

    def _buffers(self, count: int) -> None:
        head = self._head
        self._observation = np.zeros((count, *self._row_shape), self._row_dtype)
        self._inputs = np.zeros((count, self._encoding.inputs), np.float32)
        self._outputs = np.zeros((count, head.outputs + 1), np.float32)
        self._action = np.zeros((count, *(self._action_space.shape or ())), self._action_space.dtype)
        self._mask = np.ones((count, head.outputs if head.masked else 1), np.int8)
        self._drawn = np.zeros((count, head.action_size), head.action_dtype)

    def _looked(self) -> tuple[Any, ...]:
        return as_rows(self._observation), self._eyes, as_rows(self._inputs)

    def _chosen(self) -> tuple[Any, ...]:
        action = self._action if self._action.ndim == 1 else as_rows(self._action)
        return self._outputs, as_rows(self._mask), as_rows(self._drawn), action, self._rng


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
