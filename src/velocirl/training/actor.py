"""A policy on the native network, as an agent holds it, and at work outside of training, in one compiled call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from velocirl.engine.columns import Local
from velocirl.engine.compiling import learning_translator
from velocirl.engine.units import BoundUnit, bind_unit, call_unit
from velocirl.learners.block.networks import forward_unit, pack_unit
from velocirl.networks.activations import activation_from
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.networks.mlp import MLP, ROWS
from velocirl.networks.native import add_passes
from velocirl.networks.passes import passes
from velocirl.training.acting import Acting

LOOK, FORWARD, DRAW, BEST, COMMAND = range(5)


class Choosing(NamedTuple):
    """The units of a choice, by their places."""

    units: NDArray[np.int64]  # (5, 2) address and frame


def choose(arguments, first, stop, place):
    """Actions for a range of observations: drawn, or with `place` the most probable ones."""
    units = arguments[0].units
    chosen = BEST if place else DRAW
    for begin in range(first, stop, ROWS):
        end = min(begin + ROWS, stop)
        for which in (LOOK, FORWARD, chosen, COMMAND):
            call_unit(units[which, 0], units[which, 1], begin, end, 0)
    return 0


class Actor(Acting):
    """Chooses actions for one observation or a batch of them."""

    def __init__(self, network: MLP, parameters: NDArray[np.float32], *arguments: Any) -> None:
        functions = passes(activation_from(network.activation))
        self._translator, self._passes = learning_translator("policy"), learning_translator("network")
        add_passes(self._passes, functions)
        self._work = network.workspace()
        forward: Any = forward_unit(functions)
        self._forward = bind_unit(forward, (network.plan, self._work, 1), self._passes)
        pack: Any = pack_unit(functions)
        self._pack = bind_unit(pack, (network.plan, parameters, self._work), self._passes)
        row = int(network.plan.layers[0]["source_row"])
        self._inputs = self._work.values[: ROWS * row].reshape(ROWS, row)[:, : network.inputs]
        super().__init__(*arguments)

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
        if self.stale:
            self._pack(0, 1)
            self.stale = False
        self._choose(0, self.count, int(deterministic))
        return self.action.copy(), state

    def allocate(self, count: int) -> None:
        """Make rows for as many observations, and bind what is done with them."""
        super().allocate(count)
        look, draw, best, command = self.units(Local(self._inputs), Local(self._work.output), self._translator)
        self._bound = units = [look, self._forward, draw, best, command]
        table = np.array([(unit.address, unit.frame.address) for unit in units])
        self._choose: BoundUnit = bind_unit(choose, (Choosing(table),), self._translator, disjoint=False)


class NativePolicy:
    """A plan and its parameters; it has nothing else."""

    state_size = 0

    def __init__(self, network: MLP, generator: np.random.Generator) -> None:
        self.network = self.built = network
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
