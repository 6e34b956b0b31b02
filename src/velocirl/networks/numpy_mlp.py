"""Multilayer perceptron in plain NumPy, with the plan and flat vectors of the native network.

It is slow and easy to follow: for agents that run in the interpreter, and as a reference for compiled networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.networks.activations import activation_from
from velocirl.networks.layer_norm import EPSILON
from velocirl.networks.mlp import MLP


class NumpyMLP:
    """Network of a plan; its parameters are initially zero."""

    state_size = 0

    takes_statistics = False

    def __init__(self, mlp: MLP) -> None:
        self.mlp, self.outputs = mlp, mlp.outputs
        self.parameters = np.zeros(mlp.num_parameters, np.float32)
        self.gradient = np.zeros(mlp.num_parameters, np.float32)
        activation = activation_from(mlp.activation)
        self._value, self._slope = np.vectorize(activation.value), np.vectorize(activation.slope)
        self._slot: str | None = None
        self._kept: dict[str, dict[str, Any]] = {}  # kept by passes under learning() for backward

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return len(self.parameters)

    @contextmanager
    def learning(self, slot: str = "") -> Iterator[None]:
        """Keep what `backward` and `input_gradient` need of passes within this context, under the name `slot`."""
        before, self._slot = self._slot, slot
        try:
            yield
        finally:
            self._slot = before

    reading_back = learning

    def forward(self, inputs: NDArray[np.float32], state: Any = None) -> tuple[NDArray[np.float32], None]:  # noqa: ARG002
        """Return the outputs (rows, outputs) for inputs (rows, inputs), and None as the state."""
        output = np.zeros((len(inputs), self.outputs), np.float32)
        befores, values, normals, last = [], [], [], inputs
        norms = self.mlp.norms(self.parameters)
        for place, (layer, (weights, biases)) in enumerate(self._layers()):
            source = inputs if layer["first"] else last
            alone = not layer["inputs"]  # parameters without input: a policy's free log standard deviations
            before = np.broadcast_to(biases, (len(inputs), len(biases))) if alone else source @ weights + biases
            norm, normal = norms[place], None
            if norm is not None:
                normal = _normalised(before)
                before = normal[0] * norm[0] + norm[1]
            value = self._value(before).astype(np.float32) if layer["hidden"] else before
            befores.append(before)
            values.append(value)
            normals.append(normal)
            if layer["hidden"]:
                last = value
            for one in self._segments(place):
                output[:, one["column"] : one["column"] + one["size"]] = value[:, one["offset"] :][:, : one["size"]]
        if self._slot is not None:
            self._kept[self._slot] = {"inputs": inputs.copy(), "before": befores, "values": values, "normals": normals}
        return output, None

    def backward(self, output_gradient: NDArray[np.float32], accumulate: bool = False, slot: str = "") -> None:
        """Write the gradient of the parameters, or add to it, for the last forward pass made under `learning(slot)`."""
        before = self.gradient.copy() if accumulate else 0
        self.gradient[:] = 0.0
        self._descend(output_gradient, slot)
        self.gradient += before

    def input_gradient(self, output_gradient: NDArray[np.float32], slot: str = "") -> NDArray[np.float32]:
        """Return the gradient of the inputs alone, for the last forward pass made under `reading_back(slot)`."""
        kept = self.gradient.copy()
        made = self._descend(output_gradient, slot)
        self.gradient[:] = kept
        return made

    def _descend(self, output_gradient: NDArray[np.float32], slot: str) -> NDArray[np.float32]:
        if slot not in self._kept:
            raise RuntimeError("backward needs a forward pass before it, made within `with network.learning():`")
        kept = self._kept[slot]
        inputs, values = kept["inputs"], kept["values"]
        layers = list(self._layers())
        gradients, norms = self.mlp.layers(self.gradient), self.mlp.norms(self.gradient)
        gains = [None if norm is None else norm[0] for norm in self.mlp.norms(self.parameters)]
        deltas = [np.zeros_like(value) for value in values]
        made, source = np.zeros_like(inputs), self._sources()
        for place in reversed(range(len(layers))):
            layer, (weights, _) = layers[place]
            for one in self._segments(place):
                columns = slice(one["column"], one["column"] + one["size"])
                deltas[place][:, one["offset"] :][:, : one["size"]] = output_gradient[:, columns]
            if layer["hidden"]:
                slopes = self._slope(kept["before"][place], values[place])
                deltas[place] = (deltas[place] * slopes).astype(np.float32)
            norm, normal = norms[place], kept["normals"][place]
            if norm is not None:
                norm[0][:] += (deltas[place] * normal[0]).sum(0)
                norm[1][:] += deltas[place].sum(0)
                deltas[place] = _through_norm(deltas[place] * gains[place], *normal)
            gradients[place][1][:] += deltas[place].sum(0)
            if layer["inputs"]:
                read = inputs if source[place] is None else values[source[place]]
                gradients[place][0][:] += read.T @ deltas[place]
                passed = deltas[place] @ weights.T
                below = made if source[place] is None else deltas[source[place]]
                below += passed
        return made

    def _layers(self) -> Iterator[tuple[Any, tuple[NDArray[np.float32], NDArray[np.float32]]]]:
        return zip(self.mlp.plan.layers, self.mlp.layers(self.parameters), strict=True)

    def _segments(self, place: int) -> Any:
        segments = self.mlp.plan.segments
        return segments[segments["layer"] == place]

    def _sources(self) -> list[Any]:
        """Return the layer that each layer reads; None for the network's input."""
        found: list[Any] = []
        last = None
        for place, layer in enumerate(self.mlp.plan.layers):
            found.append(None if layer["first"] else last)
            if layer["hidden"]:
                last = place
        return found

    def twin(self) -> NumpyMLP:
        """Return an independent copy."""
        twin = NumpyMLP(self.mlp)
        twin.parameters[:] = self.parameters
        return twin

    def parameters_from(self, values: NDArray[np.float32]) -> None:
        """Set the parameters from an array."""
        self.parameters[:] = values

    def to_host(self) -> NDArray[np.float32]:
        """Return a copy of the parameters."""
        return self.parameters.copy()

    def buffers(self) -> dict[str, NDArray[Any]]:
        """Return no buffers: the network has only parameters."""
        return {}

    def load_buffers(self, buffers: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: there are no buffers."""


def _normalised(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return rows normalized to mean 0 and variance 1, and their inverse standard deviations (rows, 1)."""
    centred = rows - rows.mean(1, keepdims=True)
    inverse = 1 / np.sqrt((centred * centred).mean(1, keepdims=True) + np.float32(EPSILON))
    return centred * inverse, inverse


def _through_norm(
    delta: NDArray[np.float32], normal: NDArray[np.float32], inverse: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the gradient of the normalization's input, given the gradient of the normalized rows."""
    along = (delta * normal).mean(1, keepdims=True)
    return (delta - delta.mean(1, keepdims=True) - normal * along) * inverse
