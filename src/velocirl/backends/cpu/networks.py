"""Native networks on CPU threads: packed parameters, and workspaces for each share's passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.driver import (
    LEARNING,
    PARTIAL,
    Trained,
    follow_unit,
    optimiser_unit,
    pieces_of,
    reduce_unit,
)  # fmt: skip
from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.frames import Frame
from velocirl.engine.compiler.lanes import in_lanes, lane_loop
from velocirl.engine.compiler.translating import Translator
from velocirl.engine.compiler.units import BoundUnit, bind_unit
from velocirl.engine.targets.indexing import index_loop, row_loop
from velocirl.engine.targets.team import Team
from velocirl.networks.activations import activation_from
from velocirl.networks.mlp import MLP, Workspace
from velocirl.networks.native import add_passes
from velocirl.networks.passes import Passes, clear, pack_part, passes, unpack
from velocirl.optim.optimisers import FACTORS, Optimiser
from velocirl.program.clock import COUNTS, NUMBERS, Clock
from velocirl.program.rows.functions import RowFunction
from velocirl.program.several import numbers_type
from velocirl.program.task import Task
from velocirl.program.update import Call


def forward_unit(functions: Passes) -> Callable[..., Any]:
    """Return `run(arguments, first, stop, place)`: forward pass of a block, `per` rows for each sample."""
    forward = functions.forward

    def run(arguments, first, stop, place):  # noqa: ARG001 - as every unit
        plan, work, per = arguments
        forward(plan, work, (stop - first) * per)
        return 0

    return run


def backward_unit(functions: Passes) -> Callable[..., Any]:
    """Return `run(arguments, first, stop, place)`: backward pass of a block.

    It computes the gradient of the weights or, with `into`, of the inputs.
    """
    backward = functions.backward

    def run(arguments, first, stop, place):  # noqa: ARG001
        plan, work, per, into = arguments
        backward(plan, work, (stop - first) * per, into != 0, into == 0)
        return 0

    return run


def pack_unit(arguments, piece, argument, worker):  # noqa: ARG001
    """Pack a piece of the parameters for the matrix products, with `both` also for those of backward passes."""
    plan, parameters, packed, pieces, both = arguments
    pack_part(plan, parameters, packed, piece, pieces, both != 0)
    return 0


def unpack_unit(arguments, first, stop, place):  # noqa: ARG001
    """Write the gradient of a share as one flat vector."""
    plan, work, gradient = arguments
    unpack(plan, work, gradient)
    return 0


def clear_unit(arguments, first, stop, place):  # noqa: ARG001
    """Set the gradient of a share to zero."""
    plan, work = arguments
    clear(plan, work)
    return 0


class ThreadedNetworks:
    """All networks and scalars of a task, for the shares of its rows and a team of threads."""

    agents = 1

    def __init__(
        self, task: Task, optimiser: Optimiser, shares: int, team: Team, clock: Clock | None = None, device: Any = None
    ) -> None:
        """`clock` and `device` belong to a learner; an actor passes neither."""
        self.task, self.shares, self.team, self._optimiser = task, shares, team, optimiser
        self.device, self.reduce = device, task.reducer.sum
        self.tuner: NDArray[Any] | None = None  # thread autotuner of the update, see `engine.targets.autotuner`
        self.clock = clock or Clock(np.zeros((1, COUNTS), np.int64), np.zeros((1, NUMBERS)))
        self.parameters: dict[str, NDArray[np.float32]] = dict(task.parameters)
        for target, source in task.targets.items():
            self.parameters[target] = task.parameters[source].copy()
        self.moments = {
            name: np.zeros((optimiser.slots, len(self.parameters[name])), np.float32) for name in task.trained
        }
        self.steps = {name: np.zeros(1, np.int64) for name in task.trained}
        self.norms = {name: np.zeros(2) for name in task.trained}
        self._gradients = {name: np.zeros((shares, len(self.parameters[name])), np.float32) for name in task.trained}
        self._packed = {name: self.network(name).workspace().packed for name in self.parameters}
        self._works = {
            (name, share): self.network(name).workspace()._replace(packed=self._packed[name])
            for name in self.parameters
            for share in range(shares)
        }
        count = max(len(task.numbers), 1)
        self.numbers = np.zeros(1, numbers_type(task.numbers, np.float32))
        self.numbers.view(np.float32)[: len(task.numbers)] = [task.number_starts[name] for name in task.numbers]
        self.number_moments = np.zeros((optimiser.slots, count), np.float32)
        self.number_steps = np.zeros(count, np.int64)
        self.number_gradients = np.zeros((1, count), np.float32)
        self.number_factors = np.zeros(FACTORS, np.float32)
        self.learning = np.zeros(1, LEARNING)
        self.translator = learning_translator("learner")
        self._held: list[Any] = []  # objects that other frames point to
        self.networks = {
            name: NativeNetwork(self, name, self.parameters[name], packed) for name, packed in self._packed.items()
        }

    def network(self, name: str) -> MLP:
        """Return the plan of a network."""
        return self.task.built[self.task.targets.get(name, name)]

    def to_host(self, name: str) -> NDArray[np.float32]:
        """Return a copy of the parameters of a network."""
        return self.parameters[name].copy()

    def buffers(self, name: str) -> dict[str, NDArray[Any]]:  # noqa: ARG002 - as where modules have some
        """Return no buffers: a native network has only parameters."""
        return {}

    def input_row(self, name: str) -> int:
        """Return the distance between two rows of its inputs, in numbers."""
        return int(self.network(name).plan.layers[0]["source_row"])

    @cached_property
    def first_norms(self) -> NDArray[np.float64]:
        """Gradient norms of the network that takes the first step of an update, (1, 2): sum and count."""
        return self.norms[self.task.program.first_trained][None]

    @cached_property
    def first_steps(self) -> NDArray[np.int64]:
        """Optimizer steps so far of the network that takes the first step of an update, (1,)."""
        return self.steps[self.task.program.first_trained]

    @property
    def number_records(self) -> NDArray[Any]:
        """The scalars as a record with one field each, (1,)."""
        return self.numbers

    @cached_property
    def trained_parameters(self) -> list[NDArray[np.float32]]:
        """All trained parameters, as flat arrays."""
        numbers = [self.numbers.view(np.float32)] if self.task.numbers else []
        return [*(self.parameters[name] for name in self.task.trained), *numbers]

    def set_rates(self, learning_rate: float, max_grad_norm: float, max_grad_value: float) -> None:
        """Set the learning rate and the gradient limits of the next steps."""
        self.learning[0] = learning_rate, max_grad_norm, max_grad_value

    def begin(self) -> None:
        """Begin an iteration."""
        for norms in self.norms.values():
            norms[:] = 0.0

    def begin_training(self) -> None:
        """No-op: networks start from the task's parameters; the acting network trains the agent's own array."""

    def gauges(self) -> dict[str, float]:
        """Return the number of threads that updates use now."""
        return {} if self.tuner is None else self.team.gauges(self.tuner)

    def functions(self, name: str) -> Passes:
        """Return the passes of a network."""
        return self._passes[_kind(self.network(name))][0]

    def own_work(self, name: str, share: int = 0) -> Workspace:
        """Return a workspace for one more forward pass; its gradients are those of a share of the network."""
        shared = self._works[name, share]
        return (
            self.network(name).workspace()._replace(packed=shared.packed, gradient=shared.gradient, fresh=shared.fresh)
        )

    def trained(self, name: str) -> Frame:
        """Build the frame by which an update steps a network."""
        parameters, gradients = self.parameters[name], self._gradients[name]
        pieces, factors = pieces_of(len(parameters)), np.zeros(FACTORS, np.float32)
        partial = np.zeros((pieces, PARTIAL))
        several = self.task.reducer.size > 1
        summed = gradients[:1] if several else gradients  # read by `reduce`: the sum over processes, or a row per share
        unclipped = np.zeros(1, LEARNING)
        units = [
            self.bind(reduce_unit, gradients, partial, unclipped, pieces),
            self.bind(reduce_unit, summed, partial, self.learning, pieces),
            self._bind_optimiser(parameters, gradients, self.moments[name], factors, pieces, name),
            self.packing(name, self._packed[name], pieces),
        ]
        first = self.team.add(units)
        places = [first + k for k in range(len(units))]
        return Frame((Trained(pieces, factors, partial, self.steps[name], self.norms[name], *places),))

    def summed_gradients(self) -> list[NDArray[np.float32]]:
        """Return the gradients of each trained network, summed over the shares by `take_step`."""
        return [self._gradients[name][0] for name in self.task.trained]

    def clearing(self, name: str, share: int) -> BoundUnit:
        """Bind the unit that sets the gradient of a share to zero."""
        return self.bind(clear_unit, self.network(name).plan, self._works[name, share], name=name)

    def unpacking(self, name: str, share: int) -> BoundUnit:
        """Bind the unit that writes a share's gradient to the array that `reduce` reads."""
        work, gradient = self._works[name, share], self._gradients[name][share]
        return self.bind(unpack_unit, self.network(name).plan, work, gradient, name=name)

    def following(self, target: str, tau: NDArray[Any]) -> tuple[int, int]:
        """Bind the units that move a target network toward its network and pack it.

        Returns their offset in the team, and the number of pieces.
        """
        source, own = self.parameters[self.task.targets[target]], self.parameters[target]
        pieces = pieces_of(len(own))
        pack = self.packing(target, self._packed[target], pieces, both=False)
        return self.team.add([self.bind(follow_unit, source, own, tau, pieces), pack]), pieces

    @cached_property
    def number_optimiser(self) -> BoundUnit:
        """Optimizer unit of the scalars."""
        numbers = self.numbers.view(np.float32)
        return self._bind_optimiser(numbers, self.number_gradients, self.number_moments, self.number_factors, 0)

    def bind(
        self, function: Callable[..., Any], *arguments: Any, name: str | None = None, disjoint: bool = True
    ) -> BoundUnit:
        """Bind a unit of the learner; with the `name` of a network, its passes can be called."""
        translator = self.translator if name is None else self._passes[_kind(self.network(name))][1]
        return bind_unit(function, arguments, translator, disjoint=disjoint)

    def bind_rows(self, one: RowFunction) -> BoundUnit:
        """Bind a row function as a unit that goes through a range of rows."""
        run = row_loop(one.function, one.head) if one.by_row else index_loop(one.function)
        return self.bind(run, *one.arguments)

    def bind_call(self, call: Call, columns: Sequence[Any], fixed: Sequence[str] = ()) -> BoundUnit:
        """Bind an algorithm's row function: in lanes, where its rows are narrow enough."""
        lanes, head = in_lanes(call.function, columns, fixed), self.task.head if call.takes_head else None
        if lanes is None:
            return self.bind(row_loop(call.function, head), *columns)
        return self.bind(lane_loop(call.function, head), *lanes)

    def pack(self) -> None:
        """Repack the parameters of all networks, after a change outside of updates."""
        for network in self.networks.values():
            network.pack()

    def packing(
        self, name: str, packed: NDArray[np.float32], pieces: int = 1, *, both: bool = True, parameters: Any = None
    ) -> BoundUnit:
        """Bind the unit that packs a piece of a network's parameters, or of other `parameters` of the same plan."""
        parameters = self.parameters[name] if parameters is None else parameters
        return self.bind(pack_unit, self.network(name).plan, parameters, packed, pieces, int(both), name=name)

    @cached_property
    def _passes(self) -> dict[tuple[str, bool], tuple[Passes, Translator]]:
        found = {}
        for activation, layer_norm in {_kind(self.network(name)) for name in self.parameters}:
            functions, translator = passes(activation_from(activation), layer_norm), learning_translator("network")
            add_passes(translator, functions)
            found[activation, layer_norm] = functions, translator
        return found

    def _bind_optimiser(
        self, parameters: Any, gradients: Any, moments: Any, factors: Any, pieces: int, name: str | None = None
    ) -> BoundUnit:
        """Bind the optimizer step of a network's parameters, or without `name` of scalars, which do not decay."""
        optimiser, without = self._optimiser, self._optimiser.without_decay
        undecayed = np.zeros((0, 2), np.int64)
        if name is None:
            optimiser = without
        elif optimiser != without:
            undecayed = self.network(name).undecayed
        settings, still = (one.settings() for one in (optimiser, without))
        unit: Any = optimiser_unit(optimiser.rule)
        arguments = parameters, gradients, moments, settings, factors, self.learning, pieces, undecayed
        return self.bind(unit, *arguments, still, np.zeros_like(factors))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of all arrays that determine the next updates, without the acting network's parameters."""
        return {name: array.copy() for name, array in self.arrays().items()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of `state`, not copied."""
        task = self.task
        arrays: dict[str, NDArray[Any]] = {}
        for name, parameters in self.parameters.items():
            if name != task.acting:
                arrays[f"{name}.parameters"] = parameters
        for name in task.trained:
            arrays[f"{name}.moments"], arrays[f"{name}.steps"] = self.moments[name], self.steps[name]
        if task.numbers:
            arrays["numbers.values"] = self.numbers.view(np.float32)
            arrays["numbers.moments"], arrays["numbers.steps"] = self.number_moments, self.number_steps
        return arrays

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved `state`."""
        for name, array in self.arrays().items():
            array[...] = state[name]
        self.pack()


def _kind(network: MLP) -> tuple[str, bool]:
    """Return the key of a network's passes: its activation, and whether it has layer norms."""
    return network.activation, network.layer_norm


class NativeNetwork:
    """One network of a learner: its parameters, and their copy packed for matrix products."""

    state_size, takes_statistics = 0, False

    def __init__(self, networks: ThreadedNetworks, name: str, parameters: NDArray[np.float32], packed: Any) -> None:
        self.parameters, self.packed = parameters, packed
        self.networks, self._name = networks, name
        self._pack = networks.packing(name, packed, parameters=parameters)

    @property
    def outputs(self) -> int:
        """Width of the output."""
        return self.networks.network(self._name).outputs

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return len(self.parameters)

    def pack(self) -> None:
        """Repack the parameters, after a change outside of updates."""
        self._pack(0, 1)

    def twin(self) -> NativeNetwork:
        """Return an independent copy, which acts while this network learns."""
        workspace = self.networks.network(self._name).workspace()
        return NativeNetwork(self.networks, self._name, self.parameters.copy(), workspace.packed)

    def copy_from(self, other: NativeNetwork) -> None:
        """Copy the parameters of another network of the same plan."""
        self.parameters_from(other.parameters)

    def parameters_from(self, values: NDArray[np.float32]) -> None:
        """Copy the parameters from an array."""
        self.parameters[...] = values
        self.pack()

    def to_host(self) -> NDArray[np.float32]:
        """Return a copy of the parameters."""
        return self.parameters.copy()

    def buffers(self) -> dict[str, NDArray[Any]]:
        """Return no buffers: a native network has only parameters."""
        return {}

    def load_buffers(self, buffers: Mapping[str, NDArray[Any]]) -> None:
        """No-op: a native network has no buffers."""
