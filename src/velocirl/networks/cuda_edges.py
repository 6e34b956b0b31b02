"""The narrow layers of a network on a GPU: the first, which reads a few numbers, and the last, which gives a few.

A product with a side of four wastes a matrix unit and costs a pass through memory for each of its operations: product,
activation, slope, sums of weights and biases. Here each is one kernel over columns of stretches of rows, with the same
scalar functions of the activation that the CPU compiles.
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

NARROW = 8  # numbers that a first layer may read, or a last one give
THREADS = 524_288  # that keep a large GPU busy
SHORTEST, LONGEST = 8, 512  # rows that one of them goes through; dividing an index costs as much as several rows


class Extent(NamedTuple):
    """The sizes of a layer at work; unsigned, so that no index needs the test for a negative one."""

    rows: np.uint64  # of each agent
    width: np.uint64
    stretch: np.uint64  # rows whose parts of the sums one thread adds up
    stretches: np.uint64  # of each agent

    @property
    def threads(self) -> int:
        """One for each column of a stretch of rows, of each agent."""
        return int(self.stretches * self.width)


class FirstLayer:
    """A hidden layer that reads the input, forwards and backwards, each in one kernel and a sum."""

    def __init__(self, inputs: int, activation: Activation) -> None:
        self.inputs = inputs
        translator = unit_translator("first layer", double=False)
        forward, backward = first_functions(inputs, activation.value, activation.slope)
        self._forward = Relauncher(forward, translator)
        self._backward = Relauncher(backward, translator)

    def forward(self, inputs: Tensor, weights: Tensor, biases: Tensor, before: Tensor, values: Tensor) -> None:
        """Write what the layer makes of inputs (agents, rows, inputs)."""
        extent = extent_of(values)
        flat = (inputs.flatten(0, 1), weights, biases, before.flatten(0, 1), values.flatten(0, 1))
        _launch(self._forward, extent.threads * len(values), (*flat, extent))

    def backward(self, inputs: Tensor, gradient: Tensor, before: Tensor, values: Tensor) -> Tensor:
        """The gradient (agents, inputs + 1, width) of weights and then biases, from that of the layer's values."""
        extent = extent_of(values)
        partial = values.new_empty((len(values), int(extent.stretches), self.inputs + 1, values.shape[-1]))
        flat = (inputs.flatten(0, 1), gradient.flatten(0, 1), before.flatten(0, 1), values.flatten(0, 1))
        _launch(self._backward, extent.threads * len(values), (*flat, partial.flatten(0, 1), extent))
        return add_up(partial)


class LastLayer:
    """A last layer of few outputs and the activation before it, backwards: one kernel and a sum."""

    def __init__(self, outputs: int, column: int, activation: Activation) -> None:
        self.outputs = outputs
        translator = unit_translator("last layer", double=False)
        self._backward = Relauncher(last_function(outputs, column, activation.slope), translator)

    def backward(
        self, output_gradient: Tensor, weights: Tensor, before: Tensor, values: Tensor, delta: Tensor
    ) -> Tensor:
        """Write the gradient before the activation; gives (agents, outputs + 1, width): of weights, then of biases.

        The weights' gradient is that of the last layer, transposed; the biases' that of the layer before it.
        """
        extent = extent_of(values)
        partial = values.new_empty((len(values), int(extent.stretches), self.outputs + 1, values.shape[-1]))
        flat = (output_gradient.flatten(0, 1), weights, values.flatten(0, 1), before.flatten(0, 1), delta.flatten(0, 1))
        _launch(self._backward, extent.threads * len(values), (*flat, partial.flatten(0, 1), extent))
        return add_up(partial)


def add_up(partial: Tensor) -> Tensor:
    """The sum over stretches: (agents, stretches, ...) to (agents, ...)."""
    if len(partial) > 1:
        return partial.sum(1)
    # As a product with ones, since torch's own sum of tall matrices is three times as slow.
    flat = partial[0].flatten(1)
    return torch.mv(flat.mT, flat.new_ones(len(flat))).view(1, *partial.shape[2:])


def extent_of(values: Tensor) -> Extent:
    """The sizes of a layer whose values are (agents, rows, width)."""
    agents, rows, width = values.shape
    stretch = min(max(agents * rows * width // THREADS, SHORTEST), LONGEST)
    return Extent(*map(np.uint64, (rows, width, stretch, -(-rows // stretch))))


def first_functions(
    inputs: int, value: Callable[..., Any], slope: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`forward(n, ...)` and `backward(n, ...)`, each for one column of a stretch of rows."""

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
    """`backward(n, ...)` for a column of the layer before the last, over a stretch of rows."""

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
    """The agent, the column, the place of the sums, and the rows from first to stop, of thread n."""
    place = np.uint64(n) // extent.width
    c = np.uint64(n) - place * extent.width
    s = place // extent.stretches
    k = place - s * extent.stretches
    first = s * extent.rows + k * extent.stretch
    return s, c, place, first, min(first + extent.stretch, s * extent.rows + extent.rows)


def _launch(kernel: Relauncher, count: int, arguments: tuple[Any, ...]) -> None:
    kernel(count, *arguments, stream=torch.cuda.current_stream().cuda_stream)
