"""Policies on a native network: their parameters, and compiled or interpreted acting outside of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.device import PythonDevice
from velocirl.backends.cpu.networks import forward_unit, pack_unit
from velocirl.engine.compiler.columns import Local
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.units import BoundUnit, bind_unit, call_unit
from velocirl.engine.targets.launching import Work, by_row
from velocirl.networks.activations import activation_from
from velocirl.networks.mlp import MLP, ROWS
from velocirl.networks.native import add_passes
from velocirl.networks.numpy_mlp import NumpyMLP
from velocirl.networks.passes import passes
from velocirl.training.actors.acting import Acting, compiled_by

BUFFERS = "network.buffer"  # name prefix of a module's buffers
LOOK, FORWARD, DRAW, BEST, COMMAND = range(5)


class Choosing(NamedTuple):
    """Compiled units that choose actions, indexed by LOOK to COMMAND."""

    units: NDArray[np.int64]  # (5,) frames of the units


def choose(arguments, first, stop, place):
    """Choose actions for a range of observations: sampled, or if `place` is not 0 the most probable ones."""
    units = arguments[0].units
    chosen = BEST if place else DRAW
    for begin in range(first, stop, ROWS):
        end = min(begin + ROWS, stop)
        for which in (LOOK, FORWARD, chosen, COMMAND):
            call_unit(units[which], begin, end, 0)
    return 0


class CompiledMLP:
    """Forward pass of a native network on one thread, one block of rows at a time, by the learners' compiled units."""

    state_size = 0

    def __init__(self, network: MLP, parameters: NDArray[np.float32]) -> None:
        functions = passes(activation_from(network.activation), network.layer_norm)
        translator, work = learning_translator("network"), network.workspace()
        add_passes(translator, functions)
        forward: Any = forward_unit(functions)
        packing: Any = (network.plan, parameters, work.packed, 1, 1)
        row = int(network.plan.layers[0]["source_row"])
        self.inputs = work.values[: ROWS * row].reshape(ROWS, row)[:, : network.inputs]  # of the current block
        self.outputs = work.output
        self.unit = bind_unit(forward, (network.plan, work, 1), translator)
        self._pack, self._parameters = bind_unit(pack_unit, packing, translator), parameters

    def refresh(self) -> None:
        """Pack the current parameters."""
        self._pack(0, 1)

    def parameters_from(self, values: NDArray[np.float32]) -> None:
        """Copy parameters from an array."""
        self._parameters[:] = values
        self.refresh()

    def forward(self, inputs: NDArray[np.float32], state: Any = None) -> tuple[NDArray[np.float32], Any]:
        """Compute the outputs (rows, outputs) for inputs (rows, inputs); returns `state` unchanged."""
        found = np.empty((len(inputs), self.outputs.shape[1]), np.float32)
        for first in range(0, len(inputs), ROWS):
            stop = min(first + ROWS, len(inputs))
            self.inputs[: stop - first] = inputs[first:stop]
            self.unit(first, stop)
            found[first:stop] = self.outputs[: stop - first]
        return found, state


class Actor(Acting):
    """Compiled actor: chooses actions for one observation or a batch."""

    def __init__(self, network: MLP, parameters: NDArray[np.float32], *arguments: Any) -> None:
        self._translator, self._network = learning_translator("policy"), CompiledMLP(network, parameters)
        super().__init__(*arguments)

    def choose(
        self,
        observations: NDArray[Any],
        masks: NDArray[Any] | None,
        state: Any,
        episode_start: Any,  # noqa: ARG002 - for actors that remember
        deterministic: bool,
    ) -> tuple[Any, Any]:
        """Choose actions for observations (rows, *shape); returns the actions and the unchanged state."""
        self.take(observations, masks)
        if self.stale:
            self._network.refresh()
            self.stale = False
        self._choose(0, self.count, int(deterministic))
        return self.chosen(), state

    def allocate(self, count: int) -> None:
        """Allocate rows for `count` observations and bind the compiled units to them."""
        super().allocate(count)
        bind = compiled_by(self._translator)
        network = self._network
        look, draw, best, command = self.parts(Local(network.inputs), Local(network.outputs), bind)
        self._bound = units = [look, network.unit, draw, best, command]
        table = np.array([unit.frame for unit in units])
        self._choose: BoundUnit = bind_unit(choose, (Choosing(table),), self._translator, disjoint=False)


class PlainActor(Acting):
    """Interpreted actor on NumPy, to step through with a debugger."""

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
        """Choose actions for observations (rows, *shape); returns the actions and the unchanged state."""
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
        """Allocate rows for `count` observations, network inputs and network outputs."""
        super().allocate(count)
        self._inputs = np.zeros((count, self._network.mlp.inputs), np.float32)
        self._outputs = np.zeros((count, self._network.outputs), np.float32)
        device = PythonDevice()

        def bind(function: Any, columns: tuple[Any, ...], head: Any = None) -> Any:
            return device.launch([Work(by_row(function, head), columns)], count)

        self._parts = self.parts(self._inputs, self._outputs, bind)


class NativePolicy:
    """Policy on a native network: its layout and its parameters; it has no buffers."""

    state_size = 0

    def __init__(self, network: MLP, generator: np.random.Generator) -> None:
        self.network = self.built = network
        self.parameters = network.initial_parameters(generator)

    def make_actor(self, device: str, *arguments: Any) -> Actor | PlainActor:
        """Return an actor for use outside of training; `arguments` are the arguments of `Acting`."""
        kind = PlainActor if device == "python" else Actor
        return kind(self.network, self.parameters, *arguments)

    def buffers(self) -> dict[str, NDArray[Any]]:
        """Return no buffers: a native network has only parameters."""
        return {}

    def load_buffers(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Ignore `arrays`: there are no buffers."""
