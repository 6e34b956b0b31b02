"""Network without a framework: compiled passes over blocks of rows, with flat parameter and gradient vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.arithmetic.products import multiply
from velocirl.engine.compiler.compiling import add_kernel, compile_loop, learning_translator
from velocirl.engine.compiler.translating import Translator
from velocirl.networks.activations import activation_from
from velocirl.networks.mlp import MLP, ROWS
from velocirl.networks.passes import Passes, passes


def add_passes(translator: Translator, functions: Passes) -> None:
    """Make the compiled passes of a network callable from a translator's functions."""
    for kernel in functions.kernels:
        # A product may read and write the same array, at different offsets.
        add_kernel(translator, kernel, disjoint=kernel is not multiply)  # pyright: ignore[reportArgumentType]


class NativeNetwork:
    """Multilayer perceptron that runs on one thread."""

    def __init__(self, network: MLP, parameters: NDArray[np.float32]) -> None:
        if parameters.shape != (network.num_parameters,) or parameters.dtype != np.float32:
            raise ValueError(
                f"parameters must be {network.num_parameters} float32, got {parameters.dtype} {parameters.shape}"
            )
        self.network = network
        self.parameters = parameters
        self._work = network.workspace()
        self._passes = passes(activation_from(network.activation), network.layer_norm)
        self._translator = learning_translator("network")
        add_passes(self._translator, self._passes)
        self.refresh()

    def refresh(self) -> None:
        """Repack the parameters; must be called after they change."""
        self._pack(self.network.plan, self.parameters, self._work)

    def forward(self, inputs: NDArray[np.float32], outputs: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the outputs (rows, outputs) for inputs (rows, inputs), written into `outputs` if given."""
        if outputs is None:
            outputs = np.empty((len(inputs), self.network.outputs), np.float32)
        self._check("inputs", inputs, len(inputs), self.network.inputs)
        self._check("outputs", outputs, len(inputs), self.network.outputs)
        self._forward(self.network.plan, self._work, inputs, outputs)
        return outputs

    def backward(
        self,
        inputs: NDArray[np.float32],
        output_gradient: NDArray[np.float32],
        gradient: NDArray[np.float32],
        input_gradient: NDArray[np.float32] | None = None,
    ) -> None:
        """Write the gradient of the parameters, summed over the rows, and optionally of the inputs."""
        rows = len(inputs)
        self._check("inputs", inputs, rows, self.network.inputs)
        self._check("output_gradient", output_gradient, rows, self.network.outputs)
        wanted = input_gradient is not None
        into = input_gradient if wanted else np.empty((0, self.network.inputs), np.float32)
        self._check("input_gradient", into, rows if wanted else 0, self.network.inputs)
        if gradient.shape != self.parameters.shape or gradient.dtype != np.float32:
            raise ValueError(f"gradient must be float32 {self.parameters.shape}, got {gradient.dtype} {gradient.shape}")
        self._backward(self.network.plan, self._work, inputs, output_gradient, gradient, into)

    def _check(self, name: str, array: NDArray[Any], rows: int, columns: int) -> None:
        if array.shape != (rows, columns) or array.dtype != np.float32 or not array.flags.c_contiguous:
            raise ValueError(
                f"{name} must be contiguous float32 {(rows, columns)}, got {array.dtype} {array.shape}; "
                "np.ascontiguousarray(x, np.float32) makes it so"
            )

    @cached_property
    def _pack(self) -> Callable[..., None]:
        pack = self._passes.pack

        def pack_parameters(plan, parameters, work):
            pack(plan, parameters, work)

        return self._compile(pack_parameters, self.network.plan, self.parameters, self._work)

    @cached_property
    def _forward(self) -> Callable[..., None]:
        loop: Any = forward_loop(self._passes)
        rows = np.empty((0, 1), np.float32)
        return self._compile(loop, self.network.plan, self._work, rows, rows)

    @cached_property
    def _backward(self) -> Callable[..., None]:
        loop: Any = backward_loop(self._passes)
        rows = np.empty((0, 1), np.float32)
        return self._compile(loop, self.network.plan, self._work, rows, rows, self.parameters, rows)

    def _compile(self, loop: Any, *arguments: Any) -> Callable[..., None]:
        return compile_loop(loop, arguments, self._translator, before=lambda: None)


def take_rows(inputs, first, rows, values, row):
    """Copy a block of inputs to the buffer of the first layer."""
    for i in range(rows):
        for j in range(inputs.shape[1]):
            values[i * row + j] = inputs[first + i, j]


def forward_loop(functions: Passes) -> Callable[..., Any]:
    """Compose `forward(plan, work, inputs, outputs)`: all rows, block by block."""
    forward = functions.forward

    def forward_all(plan, work, inputs, outputs):
        for first in range(0, inputs.shape[0], ROWS):
            rows = min(ROWS, inputs.shape[0] - first)
            take_rows(inputs, first, rows, work.values, plan.layers[0].source_row)
            forward(plan, work, rows)
            for i in range(rows):
                for j in range(outputs.shape[1]):
                    outputs[first + i, j] = work.output[i, j]

    return forward_all


def backward_loop(functions: Passes) -> Callable[..., Any]:
    """Compose `backward(plan, work, inputs, output_gradient, gradient, input_gradient)`: all rows, block by block."""
    forward, backward, clear, unpack = functions.forward, functions.backward, functions.clear, functions.unpack

    def backward_all(plan, work, inputs, output_gradient, gradient, input_gradient):
        row = plan.layers[0].source_row
        clear(plan, work)
        for first in range(0, inputs.shape[0], ROWS):
            rows = min(ROWS, inputs.shape[0] - first)
            take_rows(inputs, first, rows, work.values, row)
            forward(plan, work, rows)
            for i in range(rows):
                for j in range(output_gradient.shape[1]):
                    work.output_gradient[i, j] = output_gradient[first + i, j]
            backward(plan, work, rows, input_gradient.shape[0] > 0)
            if input_gradient.shape[0] > 0:
                for i in range(rows):
                    for j in range(inputs.shape[1]):
                        input_gradient[first + i, j] = work.deltas[i * row + j]
        unpack(plan, work, gradient)

    return backward_all
