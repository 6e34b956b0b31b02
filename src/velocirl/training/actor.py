"""A policy at work outside of training: observations in, actions out, in one compiled call."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.engine.registers import as_rows, row
from velocirl.networks.activations import activation_from
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.mlp import MLP, ROWS
from velocirl.networks.native import add_passes
from velocirl.networks.observations import raw_space
from velocirl.networks.passes import Passes, passes
from velocirl.training.collecting import Eyes
from velocirl.training.commands import writer_for
from velocirl.training.normalising import RunningMoments


class Actor:
    """Chooses actions for one observation or a batch of them."""

    def __init__(
        self,
        network: MLP,
        parameters: NDArray[np.float32],
        head: Head,
        encoding: Encoding,
        observation_space: Space[Any],
        action_space: Space[Any],
        rng: NDArray[np.uint64],  # (1, 2)
    ) -> None:
        self.stale = True  # whether parameters or normaliser are new since the last choice
        self._network, self._head, self._parameters = network, head, parameters
        self._action_space = action_space
        self._row_shape, self._row_dtype = raw_space(observation_space)
        self._work = network.workspace()
        functions = passes(activation_from(network.activation))
        translator = learning_translator("policy")
        add_passes(translator, functions)
        self._buffers(1)
        self._rng = as_rows(rng)
        loop: Any = choose_loop(head, encoding, writer_for(action_space), functions)
        self._eyes = Eyes(*(np.zeros(encoding.inputs, np.float32) for _ in Eyes._fields))
        arguments = (network.plan, self._work, parameters, *self._rows, self._eyes, self._rng, False, False)
        self._choose = compile_loop(loop, arguments, translator, before=lambda: None)

    def look_through(self, moments: RunningMoments) -> None:
        """Normalise observations so from now on."""
        self._eyes.centre[:], self._eyes.inverse_scale[:] = moments.mean, moments.inverse_deviation

    def choose(
        self,
        observations: NDArray[Any],
        masks: NDArray[Any] | None,
        state: Any,
        episode_start: Any,  # noqa: ARG002 - for actors that remember
        deterministic: bool,
    ) -> tuple[NDArray[Any], Any]:
        """The actions for observations (rows, *shape), and the state as it was."""
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
        self._choose(
            self._network.plan,
            self._work,
            self._parameters,
            *self._rows,
            self._eyes,
            self._rng,
            deterministic,
            self.stale,
        )
        self.stale = False
        return self._action.copy(), state

    def _buffers(self, count: int) -> None:
        self._observation = np.zeros((count, *self._row_shape), self._row_dtype)
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
