"""A policy on the native network, as an agent holds it, and at work outside of training, in one compiled call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.columns import Local
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import BoundUnit, bind_unit, call_unit
from velocirl.engine.targets.launching import Work, by_row
from velocirl.learners.batch.devices.device import PythonDevice
from velocirl.learners.block.networks import forward_unit, pack_unit
from velocirl.networks.activations import activation_from
from velocirl.networks.mlp import MLP, ROWS
from velocirl.networks.native import add_passes
from velocirl.networks.numpy_mlp import NumpyMLP
from velocirl.networks.passes import passes
from velocirl.training.actors.acting import Acting, compiled_by

LOOK, FORWARD, DRAW, BEST, COMMAND = range(5)


class Choosing(NamedTuple):
    """The units of a choice, by their places."""

    units: NDArray[np.int64]  # (5,) their frames


def choose(arguments, first, stop, place):
    """Actions for a range of observations: drawn, or with `place` the most probable ones."""
    units = arguments[0].units
    chosen = BEST if place else DRAW
    for begin in range(first, stop, ROWS):
        end = min(begin + ROWS, stop)
        for which in (LOOK, FORWARD, chosen, COMMAND):
            call_unit(units[which], begin, end, 0)
    return 0


class Actor(Acting):
    """Chooses actions for one observation or a batch of them."""

    def __init__(self, network: MLP, parameters: NDArray[np.float32], *arguments: Any) -> None:
        functions = passes(activation_from(network.activation), network.layer_norm)
        self._translator, self._passes = learning_translator("policy"), learning_translator("network")
        add_passes(self._passes, functions)
        self._work = network.workspace()
        forward: Any = forward_unit(functions)
        self._forward = bind_unit(forward, (network.plan, self._work, 1), self._passes)
        packing: Any = (network.plan, parameters, self._work.packed, 1, 1)
        self._pack = bind_unit(pack_unit, packing, self._passes)
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
    ) -> tuple[Any, Any]:
        """The actions for observations (rows, *shape), and the state as it was."""
        self.take(observations, masks)
        if self.stale:
            self._pack(0, 1)
            self.stale = False
        self._choose(0, self.count, int(deterministic))
        return self.chosen(), state

    def allocate(self, count: int) -> None:
        """Make rows for as many observations, and bind what is done with them."""
        super().allocate(count)
        bind = compiled_by(self._translator)
        look, draw, best, command = self.parts(Local(self._inputs), Local(self._work.output), bind)
        self._bound = units = [look, self._forward, draw, best, command]
        table = np.array([unit.frame for unit in units])
        self._choose: BoundUnit = bind_unit(choose, (Choosing(table),), self._translator, disjoint=False)


class PlainActor(Acting):
    """The same in the interpreter, to step through with a debugger."""

    def __init__(self, network: MLP, parameters: NDArray[np.float32], *arguments: Any) -> None:
        self._network, self._own = NumpyMLP(network), parameters
        super().__init__(*arguments)

    def choose(
        self,
        observations: NDArray[Any],
        masks: NDArray[Any] | None,
        state: Any,
        episode_start: Any,  # noqa: ARG002 - for actors that remember
        deterministic: bool,
    ) -> tuple[Any, Any]:
        """The actions for observations (rows, *shape), and the state as it was."""
        self.take(observations, masks)
        self._network.parameters_from(self._own)
        self.stale = False
        look, draw, best, command = self._parts
        look(0)
        self._outputs[...] = self._network.forward(self._inputs)[0]
        (best if deterministic else draw)(0)
        command(0)
        return self.chosen(), state

    def allocate(self, count: int) -> None:
        """Make rows for as many observations, and for what the network reads and gives."""
        super().allocate(count)
        self._inputs = np.zeros((count, self._network.mlp.inputs), np.float32)
        self._outputs = np.zeros((count, self._network.outputs), np.float32)
        device = PythonDevice()

        def bind(function: Any, columns: tuple[Any, ...], head: Any = None) -> Any:
            return device.launch([Work(by_row(function, head), columns)], count)

        self._parts = self.parts(self._inputs, self._outputs, bind)


class NativePolicy:
    """A plan and its parameters; it has nothing else."""

    state_size = 0

    def __init__(self, network: MLP, generator: np.random.Generator) -> None:
        self.network = self.built = network
        self.parameters = network.initial_parameters(generator)

    def make_actor(self, device: str, *arguments: Any) -> Actor | PlainActor:
        """What acts outside of training; the arguments are those of `Acting`."""
        kind = PlainActor if device == "python" else Actor
        return kind(self.network, self.parameters, *arguments)

    def buffers(self) -> dict[str, NDArray[Any]]:
        """Nothing beside the parameters."""
        return {}

    def load_buffers(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Nothing to load."""
