"""A policy at work outside of training: observations in, actions out, in one compiled call."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from velocirl.engine.compiling import compile_loop, learning_translator
from velocirl.engine.registers import row
from velocirl.networks.activations import activation_from
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.mlp import MLP, ROWS
from velocirl.networks.native import add_passes
from velocirl.networks.passes import Passes, passes
from velocirl.training.acting import Acting
from velocirl.training.commands import writer_for


class Actor(Acting):
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
        super().__init__(head, encoding, observation_space, action_space, rng)
        self._network = network.plan, network.workspace(), parameters
        functions = passes(activation_from(network.activation))
        translator = learning_translator("policy")
        add_passes(translator, functions)
        loop: Any = choose_loop(head, encoding, writer_for(action_space), functions)
        arguments = (*self._network, *self.rows, self.eyes, self.rng, False, False)
        self._choose = compile_loop(loop, arguments, translator, before=lambda: None)

    def choose(
        self,
        observations: NDArray[Any],
        masks: NDArray[Any] | None,
        state: Any,
        episode_start: Any,  # noqa: ARG002 - for actors that remember
        deterministic: bool,
    ) -> tuple[NDArray[Any], Any]:
        """The actions for observations (rows, *shape), and the state as it was."""
        self.take(observations, masks)
        self._choose(*self._network, *self.rows, self.eyes, self.rng, deterministic, self.stale)
        self.stale = False
        return self.action.copy(), state


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
