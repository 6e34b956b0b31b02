"""A policy at work outside of training: observations in, actions out, in one compiled call."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, Space
from numpy.typing import NDArray

from velocirl.engine import random
from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.engine.registers import as_rows, row
from velocirl.networks.activations import activation_from
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.mlp import MLP, ROWS
from velocirl.networks.native import add_passes
from velocirl.networks.passes import Passes, passes
from velocirl.training.collecting import Eyes
from velocirl.training.commands import writer_for


class Actor:
    """Chooses actions for one observation or a batch of them."""

    def __init__(
        self, network: MLP, head: Head, encoding: Encoding, observation_space: Space[Any], action_space: Space[Any]
    ) -> None:
        self._network, self._head = network, head
        self._observation_space, self._action_space = observation_space, action_space
        self._row_shape = (1,) if isinstance(observation_space, Discrete) else (observation_space.shape or ())
        self._work = network.workspace()
        functions = passes(activation_from(network.activation))
        translator = learning_translator("policy")
        add_passes(translator, functions)
        self._buffers(1)
        rng = as_rows(random.streams(0, 1))
        loop: Any = choose_loop(head, encoding, writer_for(action_space), functions)
        eyes = Eyes(*(np.zeros(encoding.inputs, np.float32) for _ in Eyes._fields))
        parameters = np.zeros(network.num_parameters, np.float32)
        arguments = (network.plan, self._work, parameters, *self._rows, eyes, rng, False, False)
        self._choose = compile_loop(loop, arguments, translator, before=lambda: None)

    def choose(
        self,
        observations: NDArray[Any],
        masks: NDArray[Any] | None,
        parameters: NDArray[np.float32],
        changed: bool,
        eyes: Eyes,
        rng: NDArray[Any],
        deterministic: bool,
    ) -> NDArray[Any]:
        """The actions for observations (rows, *shape); `changed`: the parameters are new since the last call."""
        count = len(observations)
        if count != len(self._observation):
            self._buffers(count)
        self._observation[...] = observations
        if masks is not None:
            if not self._head.masked or masks.shape != self._mask.shape:
                wanted = f"have shape {self._mask.shape}" if self._head.masked else "are not for this policy"
                raise ValueError(f"action masks of {count} observations {wanted}, got {masks.shape}")
            self._mask[...] = masks
        elif self._head.masked:
            self._mask[...] = 1
        self._choose(self._network.plan, self._work, parameters, *self._rows, eyes, rng, deterministic, changed)
        return self._action.copy()

    def _buffers(self, count: int) -> None:
        self._observation = np.zeros((count, *self._row_shape), self._observation_space.dtype)
        self._action = np.zeros((count, *(self._action_space.shape or ())), self._action_space.dtype)
        self._mask = np.ones((count, self._head.outputs if self._head.masked else 1), np.int8)
        drawn = np.zeros((count, self._head.action_size), self._head.action_dtype)
        action = self._action if self._action.ndim == 1 else as_rows(self._action)
        self._rows = (as_rows(self._observation), as_rows(self._mask), as_rows(drawn), action)


def choose_loop(head: Head, encoding: Encoding, write: Any, functions: Passes) -> Any:
    """`choose(plan, work, parameters, observations, masks, drawn, actions, eyes, rng, deterministic, changed)`."""
    pack, forward, sample, mode = functions.pack, functions.forward, head.sample, head.mode
    encode, inputs = encoding.encode, encoding.inputs

    def choose(plan, work, parameters, observations, masks, drawn, actions, eyes, rng, deterministic, changed):
        if changed:
            pack(plan, parameters, work)
        input_row = plan.layers[0].source_row
        for start in range(0, len(observations), ROWS):
            rows = min(ROWS, len(observations) - start)
            for r in range(rows):
                into = work.values[r * input_row : r * input_row + inputs]
                encode(row(observations, start + r), eyes.centre, eyes.inverse_scale, into)
            forward(plan, work, rows)
            for r in range(rows):
                i = start + r
                if deterministic:
                    mode(work.output[r], row(masks, i), row(drawn, i))
                else:
                    sample(work.output[r], row(masks, i), row(rng, 0), row(drawn, i))
                write(actions, i, row(drawn, i))

    return choose
