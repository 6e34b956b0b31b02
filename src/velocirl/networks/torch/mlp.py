"""Multilayer perceptron on torch: the native network's plan and flat vectors, with explicit passes.

There is no autograd. Every product and every activation writes into memory that was allocated once, so that a CUDA
graph can capture the passes and a step allocates nothing. Several agents of the same plan can share each product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from velocirl.networks.activations import activation_from
from velocirl.networks.mlp import MLP
from velocirl.networks.torch.activations import ACTIVATE, DESCEND
from velocirl.networks.torch.layer_norm import LayerNorm
from velocirl.networks.torch.network import FlatVectors

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise ImportError('velocirl.networks.torch.mlp needs torch: pip install "velocirl[torch]"') from error

NARROWEST = 8  # up to this width, torch's own sum is fast
INPUT = -1  # source of a layer that reads the network's input


@dataclass(slots=True)
class _Layer:
    """One layer of the plan as views of the flat vectors, which may have a leading dimension for agents."""

    inputs: int
    outputs: int
    source: int | None  # the layer it reads; None if it reads nothing
    hidden: bool
    segments: list[tuple[int, int, int]]  # for a last layer: offset, size, column
    weights: Tensor  # (..., inputs, outputs)
    biases: Tensor  # (..., 1, outputs) for several agents, (outputs,) for one
    weight_gradient: Tensor  # (..., inputs, outputs)
    bias_gradient: Tensor  # (..., outputs)
    bias_share: Tensor  # (..., outputs) term added to the gradient of the biases
    norm: LayerNorm | None
    reached: bool = True  # whether an output depends on it
    columns: slice | None = None  # position of its outputs in the output row, if contiguous

    def __post_init__(self) -> None:
        if not self.hidden and len({column - offset for offset, _, column in self.segments}) == 1:
            first = self.segments[0][2]
            self.columns = slice(first, first + self.outputs)


class _Room:
    """Memory for a number of rows."""

    def __init__(self, layers: list[_Layer], keeps_input: bool, output: Tensor, inputs: Tensor | None) -> None:
        self.output = output  # (..., rows, outputs) in the type of the products
        self.result = output if inputs is None else torch.empty_like(output, dtype=torch.float32)
        self.inputs = inputs  # (..., rows, inputs) as cast; None without casting
        self.output_gradient = torch.empty_like(output)
        self.values = [
            self._columns(layer.outputs) if layer.columns is None else output[..., layer.columns] for layer in layers
        ]
        apart = [layer.hidden and keeps_input for layer in layers]
        self.before = [torch.empty_like(v) if two else v for v, two in zip(self.values, apart, strict=True)]
        # Outputs of the products: `before`, or the input of a norm.
        norms = {place: layer.norm for place, layer in enumerate(layers) if layer.norm is not None}
        self.linear = [torch.empty_like(v) if place in norms else v for place, v in enumerate(self.before)]
        self.moments = {place: norm.room(self.linear[place]) for place, norm in norms.items()}
        self.deltas = [self._columns(layer.outputs) for layer in layers]
        self.input_gradient: Tensor | None = None  # (..., rows, inputs), allocated on first use

    def _columns(self, size: int) -> Tensor:
        return self.output.new_empty((*self.output.shape[:-1], size))


class TorchMLP(FlatVectors):
    """Network of a plan, for one agent or for several at once; its parameters are initially zero.

    With `seeds` agents, all arrays have a leading dimension for them: parameters (seeds, P), inputs (seeds, rows,
    inputs), outputs (seeds, rows, outputs). With `dtype` bfloat16 or float16 the products have that type; parameters,
    outputs and the gradient stay float32. An output is the network's own memory, valid until the next forward pass with
    the same number of rows.
    """

    state_size = 0

    def __init__(
        self,
        mlp: MLP,
        device: str | torch.device = "cpu",
        seeds: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if seeds is not None and seeds < 1:
            raise ValueError(f"seeds must be None, for one agent, or at least 1, got {seeds}")
        if dtype not in (None, torch.float32, torch.bfloat16, torch.float16):
            raise ValueError(f"dtype must be None, torch.bfloat16 or torch.float16, got {dtype}")
        super().__init__((() if seeds is None else (seeds,)) + (mlp.num_parameters,), torch.device(device))
        self.mlp, self.seeds, self.outputs = mlp, seeds, mlp.outputs
        self.dtype = torch.float32 if dtype is None else dtype
        self._casts = self.dtype != torch.float32
        self._working = self.parameters.to(self.dtype) if self._casts else self.parameters
        self._working_gradient = self.gradient.to(self.dtype) if self._casts else self.gradient
        self._layers = self._make_layers()
        self._keeps_input = activation_from(mlp.activation).needs_input
        self._activate, self._descend = ACTIVATE[mlp.activation], DESCEND[mlp.activation]
        self._rooms: dict[tuple[int, str | None], _Room] = {}
        self._ones = self._working.new_ones(0)
        self._first: dict[int, Any] = {}  # layers with kernels of their own, by index
        self._last: dict[int, Any] = {}
        if self.device.type == "cuda" and not self._casts and not mlp.layer_norm:
            self._find_edges()
        self._kept: dict[str, tuple[_Room, Tensor]] = {}  # kept by passes under learning() for backward

    def forward(self, inputs: Tensor, state: Tensor | None = None) -> tuple[Tensor, None]:  # noqa: ARG002
        """Return the outputs (rows, outputs) for inputs (rows, inputs), and None as the state."""
        room = self._room(inputs)
        if room.inputs is not None:
            self._working.copy_(self.parameters)
            inputs = room.inputs.copy_(inputs)
        multiply: Callable[..., Any] = torch.addmm if self.seeds is None else torch.baddbmm
        for place, (layer, before, value) in enumerate(zip(self._layers, room.before, room.values, strict=True)):
            if place in self._first:
                biases = layer.biases.unsqueeze(0) if self.seeds is None else layer.biases.squeeze(1)
                given, weights, before, value = map(self._by_agent, (inputs, layer.weights, before, value))
                self._first[place].forward(given, weights, biases, before, value)
                continue
            if layer.source is None:
                value.copy_(layer.biases)
            else:
                source = inputs if layer.source == INPUT else room.values[layer.source]
                multiply(layer.biases, source, layer.weights, out=room.linear[place])
            if layer.norm is not None:
                layer.norm.forward(room.moments[place], before)
            if layer.hidden:
                self._activate(before, value)
            elif layer.columns is None:
                for offset, size, column in layer.segments:
                    room.output[..., column : column + size].copy_(value[..., offset : offset + size])
        if self._slot is not None:
            self._kept[self._slot] = room, inputs
        return (room.result.copy_(room.output) if self._casts else room.output), None

    def unroll(self, inputs: Tensor, starts: Tensor | None = None, state: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return the outputs (steps, rows, outputs) for inputs (steps, rows, inputs); there is no state."""
        outputs, _ = self.forward(inputs.flatten(-3, -2))
        return outputs.unflatten(-2, inputs.shape[-3:-1])

    def backward(self, output_gradient: Tensor, accumulate: bool = False, slot: str = "") -> None:
        """Write the gradient of the parameters, or add to it, for the last forward pass made under `learning(slot)`."""
        if slot not in self._kept:
            raise RuntimeError("backward needs a forward pass before it, made within `with network.learning():`")
        room, inputs = self._kept[slot]
        output_gradient = output_gradient.reshape(room.output.shape)
        if self._casts:
            output_gradient = room.output_gradient.copy_(output_gradient)
        adds = accumulate and not self._casts
        multiply: Callable[..., Any] = torch.mm if self.seeds is None else torch.bmm
        for place in reversed(range(len(self._layers))):
            layer, delta = self._layers[place], room.deltas[place]
            if not layer.reached:
                if not adds:
                    layer.weight_gradient.zero_()
                    layer.bias_gradient.zero_()
                    if layer.norm is not None:
                        layer.norm.clear()
                continue
            if place in self._first:
                self._descend_first(place, room, inputs, adds)
                continue
            if layer.hidden and self._reader(place) not in self._last:
                self._descend(delta, room.before[place], room.values[place])
                if layer.norm is not None:
                    delta = layer.norm.backward(delta, room.moments[place], adds)
            elif layer.columns is not None:
                delta = output_gradient[..., layer.columns]
            elif not layer.hidden:
                for offset, size, column in layer.segments:
                    delta[..., offset : offset + size].copy_(output_gradient[..., column : column + size])
            if not layer.hidden or self._reader(place) not in self._last:
                self._add_up(delta, layer.bias_share if adds else layer.bias_gradient)
                if adds:
                    layer.bias_gradient.add_(layer.bias_share)
            if layer.source is None:
                continue
            if place in self._last:
                self._descend_last(place, room, output_gradient, adds)
                continue
            source = inputs if layer.source == INPUT else room.values[layer.source]
            if not adds:
                multiply(source.mT, delta, out=layer.weight_gradient)
            elif self.seeds is None:
                layer.weight_gradient.addmm_(source.mT, delta)
            else:
                layer.weight_gradient.baddbmm_(source.mT, delta)
            if layer.source != INPUT:
                multiply(delta, layer.weights.mT, out=room.deltas[layer.source])
        if self._casts and accumulate:
            self.gradient.add_(self._working_gradient)
        elif self._casts:
            self.gradient.copy_(self._working_gradient)

    def input_gradient(self, output_gradient: Tensor, slot: str = "") -> Tensor:
        """Return the gradient of the inputs alone, for the last forward pass made under `reading_back(slot)`.

        It is the network's own memory, valid until the next such call with the same number of rows.
        """
        if slot not in self._kept:
            raise RuntimeError("input_gradient needs a forward pass before it, made within reading_back()")
        room, inputs = self._kept[slot]
        output_gradient = output_gradient.reshape(room.output.shape)
        if self._casts:
            output_gradient = room.output_gradient.copy_(output_gradient)
        multiply: Callable[..., Any] = torch.mm if self.seeds is None else torch.bmm
        made = room.input_gradient
        if made is None:
            made = room.input_gradient = torch.empty_like(inputs)
        made.zero_()
        for place in reversed(range(len(self._layers))):
            layer, delta = self._layers[place], room.deltas[place]
            if not layer.reached or layer.source is None:
                continue
            if layer.hidden:
                self._descend(delta, room.before[place], room.values[place])
                if layer.norm is not None:
                    delta = layer.norm.input_gradient(delta, room.moments[place])
            elif layer.columns is not None:
                delta = output_gradient[..., layer.columns]
            else:
                for offset, size, column in layer.segments:
                    delta[..., offset : offset + size].copy_(output_gradient[..., column : column + size])
            if layer.source != INPUT:
                multiply(delta, layer.weights.mT, out=room.deltas[layer.source])
            elif self.seeds is None:
                made.addmm_(delta, layer.weights.mT)
            else:
                made.baddbmm_(delta, layer.weights.mT)
        return made

    def compile(self, **options: Any) -> None:
        """Do nothing, and ignore all options: the passes are written out."""

    def buffers(self) -> dict[str, NDArray[Any]]:
        """Return no buffers: the network has only parameters."""
        return {}

    def load_buffers(self, buffers: Mapping[str, NDArray[Any]]) -> None:
        """Raise if there are any buffers, as this network has none."""
        if buffers:
            raise ValueError(f"a multilayer perceptron has no buffers, got {', '.join(buffers)}")

    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return names and shapes of the arrays in the vector of one agent, in order."""
        return [
            entry
            for place, layer in enumerate(self._layers)
            for entry in (
                (f"layers.{place}.weights", (layer.inputs, layer.outputs)),
                (f"layers.{place}.biases", (layer.outputs,)),
                *(
                    (f"layers.{place}.{name}", (layer.outputs,))
                    for name in ("gains", "shifts")
                    if layer.norm is not None
                ),
            )
        ]

    def twin(self) -> TorchMLP:
        """Return an independent copy."""
        twin = TorchMLP(self.mlp, self.device, self.seeds, self.dtype)
        twin.parameters.copy_(self.parameters)
        return twin

    def _make_layers(self) -> list[_Layer]:
        layers: list[_Layer] = []
        last = INPUT
        for place, entry in enumerate(self.mlp.plan.layers):
            inputs, outputs, first, bias = (int(entry[name]) for name in ("inputs", "outputs", "weights", "biases"))
            segments = self.mlp.plan.segments[self.mlp.plan.segments["layer"] == place]
            weights, biases = slice(first, bias), slice(bias, bias + outputs)
            layer_biases = self._working[..., biases]
            layers.append(
                _Layer(
                    inputs=inputs,
                    outputs=outputs,
                    source=None if inputs == 0 else (INPUT if entry["first"] else last),
                    hidden=bool(entry["hidden"]),
                    segments=[(int(one["offset"]), int(one["size"]), int(one["column"])) for one in segments],
                    weights=self._working[..., weights].unflatten(-1, (inputs, outputs)),
                    biases=layer_biases if self.seeds is None else layer_biases.unsqueeze(1),
                    weight_gradient=self._working_gradient[..., weights].unflatten(-1, (inputs, outputs)),
                    bias_gradient=self._working_gradient[..., biases],
                    bias_share=torch.empty_like(layer_biases),
                    norm=self._make_norm(entry),
                )
            )
            if layers[-1].hidden:
                last = place
        for place in reversed(range(len(layers))):
            readers = [layer for layer in layers if layer.source == place]
            layers[place].reached = not layers[place].hidden or any(layer.reached for layer in readers)
        return layers

    def _make_norm(self, entry: Any) -> LayerNorm | None:
        if not entry["normalised"]:
            return None
        gains, shifts = (slice(int(entry[name]), int(entry[name] + entry["outputs"])) for name in ("gains", "shifts"))
        vectors = self._working, self._working_gradient
        return LayerNorm(*(vector[..., place] for vector in vectors for place in (gains, shifts)))

    def _add_up(self, delta: Tensor, into: Tensor) -> None:
        """Sum over the rows, as a product with ones: torch's own sum of tall matrices is three times as slow."""
        if self.device.type == "cuda" and self.seeds is None and delta.shape[-1] > NARROWEST:
            if self._ones.shape[0] != delta.shape[0]:
                self._ones = delta.new_ones(delta.shape[0])
            torch.mv(delta.mT, self._ones, out=into)
        else:
            torch.sum(delta, -2, out=into)

    def _find_edges(self) -> None:
        """Assign special kernels to the narrow first and last layers of each chain."""
        from velocirl.networks.cuda_edges import NARROW, FirstLayer, LastLayer

        activation = activation_from(self.mlp.activation)
        for place, layer in enumerate(self._layers):
            if layer.hidden or layer.columns is None or layer.outputs > NARROW or layer.source in (None, INPUT):
                continue
            if self._reader(layer.source) == place:
                self._last[place] = LastLayer(layer.outputs, layer.columns.start, activation)
        for place, layer in enumerate(self._layers):
            narrow = layer.hidden and layer.source == INPUT and layer.inputs <= NARROW and layer.reached
            if narrow and self._reader(place) not in self._last:
                self._first[place] = FirstLayer(layer.inputs, activation)

    def _reader(self, place: int) -> int | None:
        """Return the one layer that reads this one; None if there are none or several."""
        readers = [other for other, layer in enumerate(self._layers) if layer.source == place]
        return readers[0] if len(readers) == 1 else None

    def _descend_first(self, place: int, room: _Room, inputs: Tensor, adds: bool) -> None:
        layer = self._layers[place]
        tensors = map(self._by_agent, (inputs, room.deltas[place], room.before[place], room.values[place]))
        made = self._first[place].backward(*tensors)
        self._put(layer.weight_gradient, made[:, :-1], adds)
        self._put(layer.bias_gradient, made[:, -1], adds)

    def _descend_last(self, place: int, room: _Room, output_gradient: Tensor, adds: bool) -> None:
        layer = self._layers[place]
        assert layer.source is not None  # noqa: S101 - that is how it was found
        source = layer.source
        tensors = (output_gradient, layer.weights, room.before[source], room.values[source], room.deltas[source])
        made = self._last[place].backward(*map(self._by_agent, tensors))
        self._put(layer.weight_gradient, made[:, :-1].mT, adds)
        self._put(self._layers[source].bias_gradient, made[:, -1], adds)

    def _put(self, gradient: Tensor, made: Tensor, adds: bool) -> None:
        made = made[0] if self.seeds is None else made
        if adds:
            gradient.add_(made)
        else:
            gradient.copy_(made)

    def _by_agent(self, tensor: Tensor) -> Tensor:
        """Return the tensor with a leading dimension for agents."""
        return tensor.unsqueeze(0) if self.seeds is None else tensor

    def _room(self, inputs: Tensor) -> _Room:
        """Return memory for these inputs; acting has its own, so that it may run between forward and backward pass."""
        rows, agents = inputs.shape[-2], inputs.shape[:-2]
        wanted = (() if self.seeds is None else (self.seeds,)) + (rows, self.mlp.inputs)
        if inputs.shape != wanted or inputs.dtype != torch.float32:
            raise ValueError(f"inputs must be float32 {wanted}, got {inputs.dtype} {tuple(inputs.shape)}")
        key = rows, self._slot
        if key not in self._rooms:
            output = torch.empty((*agents, rows, self.outputs), dtype=self.dtype, device=self.device)
            cast = torch.empty(wanted, dtype=self.dtype, device=self.device) if self._casts else None
            self._rooms[key] = _Room(self._layers, self._keeps_input, output, cast)
        return self._rooms[key]
