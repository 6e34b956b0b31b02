"""Multilayer perceptrons by size and number of rows: forward, and forward plus backward, on one core."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.machine.arithmetic import backward_operations, forward_operations
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.units import ROWS as ROWS_PER_SECOND
from velocirl.networks.mlp import MLP
from velocirl.networks.native import NativeNetwork

INPUTS, OUTPUTS = 64, 16
WIDTHS, ROWS = (64, 256, 512), (1, 64, 4096)
COMPARED_WIDTH = 256  # with torch, which needs a process per result; `forward_one` measures one row
Direction = Literal["forward", "backward"]


def sizes_of(width: int) -> tuple[int, ...]:
    """Return the layer sizes of a network with two hidden layers."""
    return INPUTS, width, width, OUTPUTS


def velocirl_network(direction: Direction, width: int, rows: int) -> Timed:
    """Time rows through the native network on one thread, from NumPy arrays to NumPy arrays."""
    network, generator = MLP.of(sizes_of(width)), np.random.default_rng(0)
    native = NativeNetwork(network, network.initial_parameters(generator))
    inputs = generator.standard_normal((rows, INPUTS), np.float32)
    outputs = generator.standard_normal((rows, OUTPUTS), np.float32)
    operations = forward_operations(sizes_of(width))
    if direction == "forward":
        return Timed(lambda: native.forward(inputs, outputs), amount=rows, cost=Cost(operations=operations))
    gradient, operations = np.empty_like(native.parameters), operations + backward_operations(sizes_of(width))
    return Timed(lambda: native.backward(inputs, outputs, gradient), amount=rows, cost=Cost(operations=operations))


def torch_network(direction: Direction, width: int, rows: int) -> Peer:
    """Time the same network in torch on one core, from tensors to tensors."""
    return Peer("torch_network", direction, rows, *sizes_of(width), needs="torch", amount=rows, cores=1)


def comparison(direction: Direction) -> Comparison:
    """Compare every size with every number of rows."""
    contestants: dict[str, Callable[[], Timed]] = {}
    peers: dict[str, str] = {}
    for width in WIDTHS:
        for rows in ROWS:
            name = f"{width}x{width}, {rows:,} {'row' if rows == 1 else 'rows'}"
            contestants[name] = partial(velocirl_network, direction, width, rows)
            if width == COMPARED_WIDTH and rows > 1:
                peers[name] = f"torch, {name}"
                contestants[peers[name]] = partial(torch_network, direction, width, rows)
    return Comparison(ROWS_PER_SECOND, contestants, [ratio(*pair) for pair in peers.items()], tuple(peers.values()))


@benchmark(category="network")
def network_forward() -> Comparison:
    """Rows through an MLP of 64 inputs, two hidden layers and 16 outputs, by size, on one core.

    ReLU. velocirl reads and writes NumPy arrays; torch has tensors already, in inference mode. Of the arithmetic, only
    the multiplications and additions of the layers count.
    """
    return comparison("forward")


@benchmark(category="network")
def network_backward() -> Comparison:
    """Rows forward and backward through an MLP of 64 inputs, two hidden layers and 16 outputs, by size, on one core.

    From a gradient of the outputs to that of all parameters, summed over the rows, the forward pass included.
    """
    return comparison("backward")
