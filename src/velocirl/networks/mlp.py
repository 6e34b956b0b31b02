"""Plan of a multilayer perceptron: its layers, their offsets in the flat vectors, and their initial values.

All parameters are one flat vector, all gradients another. A network is one or more chains of layers that read the same
input (shared actor and critic: one chain; separate: two). The columns of their last layers are assigned to one output
row, such as policy parameters and then the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.arithmetic.products import PANEL, padded
from velocirl.engine.disk.allowance import claim
from velocirl.networks.activations import activation_from
from velocirl.networks.initialisers import initialiser_from

ROWS = 96  # rows that pass through all layers together: 16 tiles of 6, within the second-level cache
# A row length that is a power of 2 would map all rows of a block to the same few cache lines.
_SPACING = 8

_WHOLE = np.int64
LAYER = np.dtype(
    [
        (name, _WHOLE)
        for name in (
            "inputs", "outputs", "columns",  # columns: outputs as computed, a multiple of 8
            "weights", "biases",  # offsets in the flat vectors; weights (inputs, outputs)
            "packed", "packed_biases", "transposed",  # offsets in the packed copy: panels of W, bias, panels of W^T
            "source", "source_row",  # offset and row length of its input, in the values
            "place", "before", "row",  # offsets of its outputs, and of their pre-activations
            "linear",  # offset of its product: `before`, or a separate one with a layer norm
            "source_delta", "delta",  # offsets of the gradients, in the deltas
            "gradient", "bias_gradient",  # offsets in the gradient as computed, (inputs, columns)
            "hidden",  # 1 if activated
            "first",  # 1 if it reads the network's input
            "normalised",  # 1 if it has a layer norm; the fields below are for norms only
            "gains", "shifts",  # offsets in the flat vectors
            "packed_gains", "packed_shifts", "gain_gradient", "shift_gradient",  # as for the biases
            "inverse_deviations",  # inverse standard deviation of each row, in the values
        )
    ]
)  # fmt: skip
SEGMENT = np.dtype([(name, _WHOLE) for name in ("layer", "offset", "size", "column")])


class Plan(NamedTuple):
    """Network as arrays, for compiled functions."""

    layers: NDArray[Any]  # (layers,) LAYER
    segments: NDArray[Any]  # (segments,) SEGMENT


class Workspace(NamedTuple):
    """Buffers of one thread for a block of rows; allocated once."""

    packed: NDArray[np.float32]  # the parameters, packed for the products
    values: NDArray[np.float32]  # the input and every layer's output
    deltas: NDArray[np.float32]  # gradients of the values
    gradient: NDArray[np.float32]  # gradient of the parameters, with padded columns
    fresh: NDArray[np.int64]  # (1,) 1 if the gradient counts as zero, whatever its content
    output: NDArray[np.float32]  # (ROWS, outputs)
    output_gradient: NDArray[np.float32]  # (ROWS, outputs)


@dataclass(frozen=True)
class Segment:
    """Adjacent columns of the output row. `free` ones depend on no input: parameters with that initial value."""

    column: int
    size: int
    gain: float = 1.0  # gain of the initial weights
    free: float | None = None


@dataclass(frozen=True)
class Chain:
    """Layers in sequence, from the input to segments of the output."""

    hidden: tuple[int, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class MLP:
    """Multilayer perceptron of any depth and width.

    With `layer_norm`, each hidden layer is normalized before the activation, to mean 0 and variance 1 per row, with a
    learned gain and shift: torch.nn.LayerNorm between product and activation.
    """

    inputs: int
    chains: tuple[Chain, ...]
    activation: str = "tanh"
    initialiser: str = "orthogonal"
    layer_norm: bool = False
    plan: Plan = field(init=False, repr=False, compare=False)
    outputs: int = field(init=False)
    num_parameters: int = field(init=False)
    _sizes: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for size in (self.inputs, *(width for chain in self.chains for width in chain.hidden)):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"a layer's width must be a whole number of at least 1, got {size!r}")
        activation_from(self.activation)
        initialiser_from(self.initialiser)
        _lay_out(self)

    @staticmethod
    def of(
        sizes: Sequence[int], activation: str = "relu", initialiser: str = "he_uniform", *, layer_norm: bool = False
    ) -> MLP:
        """Build a single chain: `MLP.of([64, 256, 256, 16])`."""
        if len(sizes) < 2:
            raise ValueError(f"sizes must have an input and an output, got {list(sizes)}")
        chain = Chain(tuple(sizes[1:-1]), (Segment(0, sizes[-1]),))
        return MLP(sizes[0], (chain,), activation, initialiser, layer_norm)

    def initial_parameters(self, generator: np.random.Generator) -> NDArray[np.float32]:
        """Return initial parameters: weights by the initializer, biases and shifts 0, gains 1, free segments as set."""
        claim(4 * self.num_parameters, f"a network of {self.num_parameters:,} parameters")
        parameters = np.zeros(self.num_parameters, np.float32)
        initialise = initialiser_from(self.initialiser)
        hidden_gain = activation_from(self.activation).gain
        ends = iter([end for chain in self.chains for end in _ends(chain)])
        for layer in self.plan.layers:
            segments = () if layer["hidden"] else next(ends)
            weights, biases = self._views(parameters, layer)
            inputs = int(layer["inputs"])
            if layer["hidden"]:
                weights[:] = initialise(generator, inputs, int(layer["outputs"]), hidden_gain)
            offset = 0
            for segment in segments:
                columns = slice(offset, offset + segment.size)
                if segment.free is not None:
                    biases[columns] = segment.free
                else:
                    weights[:, columns] = initialise(generator, inputs, segment.size, segment.gain)
                offset += segment.size
        for norm in self.norms(parameters):
            if norm is not None:
                norm[0][:] = 1.0
        return parameters

    def layers(self, parameters: NDArray[np.float32]) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return views of the flat vector, in order: weights (inputs, outputs) and biases (outputs,) of each layer."""
        return [self._views(parameters, layer) for layer in self.plan.layers]

    def norms(self, parameters: NDArray[np.float32]) -> list[tuple[NDArray[np.float32], NDArray[np.float32]] | None]:
        """Return views of the flat vector: gains and shifts (outputs,) of each layer's norm; None without a norm."""
        return [
            (
                parameters[layer["gains"] : layer["gains"] + layer["outputs"]],
                parameters[layer["shifts"] : layer["shifts"] + layer["outputs"]],
            )
            if layer["normalised"]
            else None
            for layer in self.plan.layers
        ]

    @property
    def undecayed(self) -> NDArray[np.int64]:
        """Ranges of the flat vector without weight decay, (ranges, 2): free segments, such as log stds."""
        found = [(one["biases"], one["biases"] + one["outputs"]) for one in self.plan.layers if one["inputs"] == 0]
        return np.array(found, np.int64).reshape(-1, 2)

    def workspace(self) -> Workspace:
        """Allocate the buffers of one thread."""
        arrays = {name: np.zeros(size, np.float32) for name, size in self._sizes.items()}
        output = np.zeros((ROWS, self.outputs), np.float32)
        fresh = np.ones(1, np.int64)
        return Workspace(fresh=fresh, output=output, output_gradient=np.zeros_like(output), **arrays)

    def _views(self, parameters: NDArray[Any], layer: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        inputs, outputs, weights, biases = (int(layer[name]) for name in ("inputs", "outputs", "weights", "biases"))
        return (
            parameters[weights : weights + inputs * outputs].reshape(inputs, outputs),
            parameters[biases : biases + outputs],
        )


def _ends(chain: Chain) -> list[tuple[Segment, ...]]:
    """Return the segments of each last layer of a chain: those that depend on its input, then the free ones."""
    hanging = tuple(one for one in chain.segments if one.free is None)
    free = tuple(one for one in chain.segments if one.free is not None)
    return [segments for segments in (hanging, free) if segments]


class _Room:
    """Allocator of offsets in a vector, each a multiple of 16 numbers."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, size: int) -> int:
        start = self.size
        self.size += -(-size // PANEL) * PANEL
        return start


def _lay_out(network: MLP) -> None:
    """Assign all offsets; sets plan, outputs, num_parameters and the sizes of a workspace."""
    rooms = {name: _Room() for name in ("packed", "values", "deltas", "gradient")}
    packed, values, deltas, gradient = rooms.values()
    ends = [sum(one.size for one in end) for chain in network.chains for end in _ends(chain)]
    widths = [network.inputs, *ends, *(width for chain in network.chains for width in chain.hidden)]
    packed.take(max(PANEL, *map(padded, widths)))  # zeros, for sums that begin there
    input_row = padded(network.inputs) + _SPACING
    input_place, input_delta = values.take(ROWS * input_row), deltas.take(ROWS * input_row)
    keeps_input = activation_from(network.activation).needs_input
    layers: list[tuple[int, ...]] = []
    segments: list[tuple[int, ...]] = []
    flat = 0

    def add(inputs: int, outputs: int, source: tuple[int, int, int], *, hidden: bool) -> tuple[int, int, int]:
        nonlocal flat
        columns = padded(outputs)
        row = columns + _SPACING
        place, delta = values.take(ROWS * row), deltas.take(ROWS * row)
        before = values.take(ROWS * row) if hidden and keeps_input else place
        weights, biases = flat, flat + inputs * outputs
        flat = biases + outputs
        normalised = hidden and network.layer_norm
        gains, shifts = (flat, flat + outputs) if normalised else (0, 0)
        flat += 2 * outputs if normalised else 0
        panels = -(-columns // PANEL) * PANEL
        back_panels = -(-padded(inputs) // PANEL) * PANEL
        layers.append(
            (
                inputs, outputs, columns, weights, biases,
                packed.take(inputs * panels), packed.take(panels), packed.take(outputs * back_panels),
                source[0], source[1], place, before, row, values.take(ROWS * row) if normalised else before,
                source[2], delta,
                gradient.take(inputs * columns), gradient.take(columns),
                int(hidden), int(source[2] == input_delta and inputs > 0),
                int(normalised), gains, shifts,
                *(room.take(panels) if normalised else 0 for room in (packed, packed, gradient, gradient)),
                values.take(ROWS) if normalised else 0,
            )
        )  # fmt: skip
        return place, row, delta

    for chain in network.chains:
        source, width = (input_place, input_row, input_delta), network.inputs
        for size in chain.hidden:
            source, width = add(width, size, source, hidden=True), size
        for end in _ends(chain):
            free = end[0].free is not None
            add(0 if free else width, sum(one.size for one in end), source, hidden=False)
            offset = 0
            for one in end:
                segments.append((len(layers) - 1, offset, one.size, one.column))
                offset += one.size
    covered = sorted((column, column + size) for _, _, size, column in segments)
    if covered[0][0] != 0 or any(before[1] != after[0] for before, after in pairwise(covered)):
        raise ValueError(f"the segments must cover the output row without a gap, got {covered}")
    plan = Plan(np.array(layers, LAYER), np.array(segments, SEGMENT))
    sizes = {name: max(room.size, PANEL) for name, room in rooms.items()}
    for name, value in (("plan", plan), ("outputs", covered[-1][1]), ("num_parameters", flat), ("_sizes", sizes)):
        object.__setattr__(network, name, value)
