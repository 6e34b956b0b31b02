"""Narrow layers of a network on a GPU: a first layer with few inputs and a last layer with few outputs.

A product with a side of 4 wastes a matrix unit. Product, activation, slope, and sums of weights and biases each cost a
pass through memory. Here each layer is one kernel over columns of segments of rows, with the activation's scalar
functions that the CPU compiles too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import float32
from torch import Tensor

from velocirl.engine.targets.cuda_kernels import cuda
from velocirl.engine.targets.cuda_units import Relauncher, unit_translator
from velocirl.networks.activations import Activation

NARROW = 8  # inputs of a first layer, or outputs of a last one, at most
THREADS = 524_288  # number of threads that keep a large GPU busy
SHORTEST, LONGEST = 8, 512  # rows per thread; dividing an index costs as much as several rows


class Extent(NamedTuple):
    """Sizes of a layer; unsigned, so that indices need no test for negative values."""

    rows: np.uint64  # per agent
    width: np.uint64
    stretch: np.uint64  # rows whose partial sums one thread computes
    stretches: np.uint64  # per agent

    @property
    def threads(self) -> int:
        """Number of threads: one for each column of each segment of rows, of each agent."""
        return int(self.stretches * self.width)


class FirstLayer:
    """Hidden layer that reads the input; forward and backward are one kernel each, backward with a sum."""

    def __init__(self, inputs: int, activation: Activation) -> None:
        self.inputs = inputs
        translator = unit_translator("first layer", double=False)
        forward, backward = first_functions(inputs, activation.value, activation.slope)
        self._forward = Relauncher(forward, translator)
        self._backward = Relauncher(backward, translator)

    def forward(self, inputs: Tensor, weights: Tensor, biases: Tensor, before: Tensor, values: Tensor) -> None:
        """Compute the layer for inputs (agents, rows, inputs), into `before` (pre-activation) and `values`."""
        extent = extent_of(values)
        flat = (inputs.flatten(0, 1), weights, biases, before.flatten(0, 1), values.flatten(0, 1))
        _launch(self._forward, extent.threads * len(values), (*flat, extent))

    def backward(self, inputs: Tensor, gradient: Tensor, before: Tensor, values: Tensor) -> Tensor:
        """Return the gradient (agents, inputs + 1, width) of weights and then biases, given the values' gradient."""
        extent = extent_of(values)
        partial = values.new_empty((len(values), int(extent.stretches), self.inputs + 1, values.shape[-1]))
        flat = (inputs.flatten(0, 1), gradient.flatten(0, 1), before.flatten(0, 1), values.flatten(0, 1))
        _launch(self._backward, extent.threads * len(values), (*flat, partial.flatten(0, 1), extent))
        return add_up(partial)


class LastLayer:
    """Backward pass of a last layer with few outputs and the activation before it: one kernel and a sum."""

    def __init__(self, outputs: int, column: int, activation: Activation) -> None:
        self.outputs = outputs
        translator = unit_translator("last layer", double=False)
        self._backward = Relauncher(last_function(outputs, column, activation.slope), translator)

    def backward(
        self, output_gradient: Tensor, weights: Tensor, before: Tensor, values: Tensor, delta: Tensor
    ) -> Tensor:
        """Write the gradient before the activation. Returns (agents, outputs + 1, width): of weights, then of biases.

        The weights' gradient is the last layer's, transposed; the biases' gradient is the previous layer's.
        """
        extent = extent_of(values)
        partial = values.new_empty((len(values), int(extent.stretches), self.outputs + 1, values.shape[-1]))
        flat = (output_gradient.flatten(0, 1), weights, values.flatten(0, 1), before.flatten(0, 1), delta.flatten(0, 1))
        _launch(self._backward, extent.threads * len(values), (*flat, partial.flatten(0, 1), extent))
        return add_up(partial)


def add_up(partial: Tensor) -> Tensor:
    """Sum over segments of rows: (agents, stretches, ...) to (agents, ...)."""
    if len(partial) > 1:
        return partial.sum(1)
    # As a product with ones: torch's own sum of tall matrices is three times as slow.
    flat = partial[0].flatten(1)
    return torch.mv(flat.mT, flat.new_ones(len(flat))).view(1, *partial.shape[2:])


def extent_of(values: Tensor) -> Extent:
    """Return the sizes of a layer with values (agents, rows, width)."""
    agents, rows, width = values.shape
    stretch = min(max(agents * rows * width // THREADS, SHORTEST), LONGEST)
    return Extent(*map(np.uint64, (rows, width, stretch, -(-rows // stretch))))


def first_functions(
    inputs: int, value: Callable[..., Any], slope: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compose `forward(n, ...)` and `backward(n, ...)`, each for one column of a segment of rows."""

    def forward(n, r, t, given, weights, biases, before, values, extent):  # noqa: ARG001 - as every function of an index
        s, c, _, first, stop = own_part(n, extent)
        weight = cuda.local.array(NARROW, float32)
        for j in range(inputs):
            weight[j] = weights[s, j, c]
        bias = biases[s, c]
        for q in range(first, stop):
            total = bias
            for j in range(inputs):
                total += given[q, j] * weight[j]
            before[q, c] = total
            values[q, c] = value(total)

    def backward(n, r, t, given, gradient, before, values, partial, extent):  # noqa: ARG001
        _, c, place, first, stop = own_part(n, extent)
        sums = cuda.local.array(NARROW, float32)
        for j in range(inputs):
            sums[j] = 0.0
        bias = np.float32(0)
        for q in range(first, stop):
            delta = gradient[q, c] * slope(before[q, c], values[q, c])
            bias += delta
            for j in range(inputs):
                sums[j] += given[q, j] * delta
        for j in range(inputs):
            partial[place, j, c] = sums[j]
        partial[place, inputs, c] = bias

    return forward, backward


def last_function(outputs: int, column: int, slope: Callable[..., Any]) -> Callable[..., Any]:
    """Compose `backward(n, ...)` for a column of the layer before the last, over a segment of rows."""

    def backward(n, r, t, output_gradient, weights, values, before, delta, partial, extent):  # noqa: ARG001
        s, c, place, first, stop = own_part(n, extent)
        sums = cuda.local.array(NARROW, float32)
        weight = cuda.local.array(NARROW, float32)
        for j in range(outputs):
            sums[j] = 0.0
            weight[j] = weights[s, c, j]
        bias = np.float32(0)
        for q in range(first, stop):
            value = values[q, c]
            total = np.float32(0)
            for j in range(outputs):
                wanted = output_gradient[q, column + j]
                total += wanted * weight[j]
                sums[j] += wanted * value
            total *= slope(before[q, c], value)
            delta[q, c] = total
            bias += total
        for j in range(outputs):
            partial[place, j, c] = sums[j]
        partial[place, outputs, c] = bias

    return backward


def own_part(n, extent):
    """Return thread n's agent, column, index of the partial sums, and rows from first to stop."""
    place = np.uint64(n) // extent.width
    c = np.uint64(n) - place * extent.width
    s = place // extent.stretches
    k = place - s * extent.stretches
    first = s * extent.rows + k * extent.stretch
    return s, c, place, first, min(first + extent.stretch, s * extent.rows + extent.rows)


def _launch(kernel: Relauncher, count: int, arguments: tuple[Any, ...]) -> None:
    kernel(count, *arguments, stream=torch.cuda.current_stream().cuda_stream)
