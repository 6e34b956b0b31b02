"""Forward and backward passes for one block of rows: plain functions, compiled for the learner.

A block fits the caches of one core, so that a layer finds the previous layer's outputs there. Rows are sliced: indices
that begin at zero need no test for negative values, and such loops are vectorized.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from velocirl.engine.compiler.arithmetic.products import PANEL, multiply, padded
from velocirl.networks.activations import Activation
from velocirl.networks.layer_norm import descend_norm, normalise

SQUARE = 16  # columns transposed together
WIDTH = np.uint64(PANEL)  # unsigned: indices need no test for negative values


class Passes(NamedTuple):
    """Functions of one network, composed for its activation, with or without layer norms."""

    kernels: tuple[Callable[..., Any], ...]  # all of them, each after those it calls
    pack: Callable[..., None]  # (plan, parameters, work): pack the parameters for the products
    forward: Callable[..., None]  # (plan, work, rows): from work.values[0:] to work.output
    # (plan, work, rows, inputs_too, weights_too=True): adds to work.gradient from work.output_gradient. For the
    # gradient of the inputs alone, pass weights_too=False and clear the gradient afterwards.
    backward: Callable[..., None]
    clear: Callable[..., None]  # (plan, work): set the gradient to zero
    unpack: Callable[..., None]  # (plan, work, gradient): the gradient as one flat vector


def pack_panels(source, start, rows, columns, target, place, first, stop):
    """Copy panels number `first` up to `stop` of a matrix, 16 columns each, padded with zeros."""
    whole = min(stop, columns // PANEL)
    row, height = np.uint64(columns), np.uint64(rows)
    for number in range(first, whole):
        column = number * PANEL
        given = source[start + column : start + rows * columns]
        taken = target[place + column * rows : place + (column + PANEL) * rows]
        for i in range(height):
            for j in range(WIDTH):
                taken[i * WIDTH + j] = given[i * row + j]
    for number in range(max(first, whole), stop):
        column = number * PANEL
        for i in range(rows):
            for j in range(PANEL):
                inside = column + j < columns
                at = start + i * columns + column + (j if inside else 0)
                target[place + column * rows + i * PANEL + j] = source[at] if inside else 0.0


def pack_transposed(source, start, rows, columns, target, place, first, stop):
    """Copy panels of the transpose: a panel is 16 rows of the matrix, turned in squares that stay in the cache."""
    for number in range(first, stop):
        top = number * PANEL
        into = target[place + top * columns : place + (top + PANEL) * columns]
        height = min(PANEL, rows - top)
        whole = columns // SQUARE * SQUARE if height == PANEL else 0
        for left in range(0, whole, SQUARE):
            for j in range(PANEL):
                given = source[start + (top + j) * columns + left : start + (top + j) * columns + left + SQUARE]
                for i in range(SQUARE):
                    into[(left + i) * PANEL + j] = given[i]
        for i in range(whole, columns):
            for j in range(PANEL):
                into[i * PANEL + j] = source[start + (top + j) * columns + i] if j < height else 0.0


def pack_part(plan, parameters, packed, thread, threads, both):
    """Do a thread's part of packing: panels of every matrix, the biases and, if `both`, the transpose."""
    for number in range(len(plan.layers)):
        layer = plan.layers[number]
        panels = (layer.outputs + PANEL - 1) // PANEL
        first, stop = panels * thread // threads, panels * (thread + 1) // threads
        pack_panels(parameters, layer.biases, 1, layer.outputs, packed, layer.packed_biases, first, stop)
        if layer.normalised:
            pack_panels(parameters, layer.gains, 1, layer.outputs, packed, layer.packed_gains, first, stop)
            pack_panels(parameters, layer.shifts, 1, layer.outputs, packed, layer.packed_shifts, first, stop)
        pack_panels(parameters, layer.weights, layer.inputs, layer.outputs, packed, layer.packed, first, stop)
        if both:
            panels = (layer.inputs + PANEL - 1) // PANEL
            first, stop = panels * thread // threads, panels * (thread + 1) // threads
            pack_transposed(
                parameters, layer.weights, layer.inputs, layer.outputs, packed, layer.transposed, first, stop
            )


def pack(plan, parameters, work):
    """Pack all parameters for the products."""
    pack_part(plan, parameters, work.packed, 0, 1, True)


def add_columns(deltas, start, row, rows, columns, sums, place):
    """Add every row of a block to one row of sums: the gradient of the biases."""
    total = sums[place : place + columns]
    for i in range(rows):
        delta = deltas[start + i * row : start + i * row + columns]
        for j in range(columns):
            total[j] += delta[j]


def clear_row(sums, place, columns):
    """Set a row of sums to zero."""
    row = sums[place : place + columns]
    for j in range(len(row)):
        row[j] = 0.0


def clear(plan, work):
    """Set the gradient to zero; for the weights only by a flag, as the next pass overwrites them."""
    for number in range(len(plan.layers)):
        layer = plan.layers[number]
        clear_row(work.gradient, layer.bias_gradient, layer.columns)
        if layer.normalised:
            clear_row(work.gradient, layer.gain_gradient, layer.columns)
            clear_row(work.gradient, layer.shift_gradient, layer.columns)
    work.fresh[0] = 1


def unpack(plan, work, gradient):
    """Write the gradient as one flat vector, without the padding."""
    if work.fresh[0] != 0:
        for p in range(len(gradient)):
            gradient[p] = 0.0
        return
    for number in range(len(plan.layers)):
        layer = plan.layers[number]
        for i in range(layer.inputs):
            given = work.gradient[layer.gradient + i * layer.columns : layer.gradient + (i + 1) * layer.columns]
            taken = gradient[layer.weights + i * layer.outputs : layer.weights + (i + 1) * layer.outputs]
            for j in range(len(taken)):
                taken[j] = given[j]
        for j in range(layer.outputs):
            gradient[layer.biases + j] = work.gradient[layer.bias_gradient + j]
        if layer.normalised:
            for j in range(layer.outputs):
                gradient[layer.gains + j] = work.gradient[layer.gain_gradient + j]
                gradient[layer.shifts + j] = work.gradient[layer.shift_gradient + j]


def passes(activation: Activation, layer_norm: bool = False) -> Passes:
    """Compose the passes of a network with this activation, with or without layer norms."""
    value, slope = activation.value, activation.slope

    def activate(before, values, start, place, row, rows, columns):
        for i in range(rows):
            x = before[start + i * row : start + i * row + columns]
            y = values[place + i * row : place + i * row + columns]
            for j in range(columns):
                y[j] = value(x[j])

    def descend(deltas, delta, before, values, start, place, row, rows, columns, sums, bias):
        """Backpropagate through the activation, and add the rows up for the biases or shifts."""
        total = sums[bias : bias + columns]
        for i in range(rows):
            x = before[start + i * row : start + i * row + columns]
            y = values[place + i * row : place + i * row + columns]
            d = deltas[delta + i * row : delta + i * row + columns]
            for j in range(columns):
                d[j] *= slope(x[j], y[j])
                total[j] += d[j]

    def forward(plan, work, rows):
        values = work.values
        for number in range(len(plan.layers)):
            layer = plan.layers[number]
            multiply(
                values, layer.source, layer.source_row, 1,
                work.packed, layer.packed, layer.inputs * PANEL, PANEL,
                work.packed, layer.packed_biases, 0,
                values, layer.linear, layer.row, rows, layer.columns, layer.inputs,
            )  # fmt: skip
            if layer.hidden:
                if layer_norm:
                    normalise(
                        values, layer.linear, values, layer.inverse_deviations,
                        work.packed, layer.packed_gains, layer.packed_shifts,
                        values, layer.before, layer.row, rows, layer.outputs, layer.columns,
                    )  # fmt: skip
                activate(values, values, layer.before, layer.place, layer.row, rows, layer.columns)
        for s in range(len(plan.segments)):
            segment = plan.segments[s]
            layer = plan.layers[segment.layer]
            for i in range(rows):
                for j in range(segment.size):
                    work.output[i, segment.column + j] = values[layer.place + i * layer.row + segment.offset + j]

    def backward(plan, work, rows, inputs_too, weights_too=True):
        values, deltas, sums = work.values, work.deltas, work.gradient
        for s in range(len(plan.segments)):
            segment = plan.segments[s]
            layer = plan.layers[segment.layer]
            for i in range(rows):
                for j in range(segment.size):
                    deltas[layer.delta + i * layer.row + segment.offset + j] = work.output_gradient[
                        i, segment.column + j
                    ]
        fresh = work.fresh[0] != 0  # then sums begin at the zeros at the start of the packed parameters
        reached = 0  # number of chains that have added to the gradient of the input
        for number in range(len(plan.layers) - 1, -1, -1):
            layer = plan.layers[number]
            if layer.hidden:
                descend(
                    deltas, layer.delta, values, values, layer.before, layer.place, layer.row, rows, layer.columns,
                    sums, layer.shift_gradient if layer_norm else layer.bias_gradient,
                )  # fmt: skip
                if layer_norm:
                    descend_norm(
                        deltas, layer.delta, values, layer.linear, values, layer.inverse_deviations,
                        work.packed, layer.packed_gains, layer.row, rows, layer.outputs, layer.columns,
                        sums, layer.gain_gradient, layer.bias_gradient,
                    )  # fmt: skip
            else:
                add_columns(deltas, layer.delta, layer.row, rows, layer.columns, sums, layer.bias_gradient)
            if weights_too:
                multiply(
                    values, layer.source, 1, layer.source_row,
                    deltas, layer.delta, PANEL, layer.row,
                    work.packed if fresh else sums, 0 if fresh else layer.gradient, 0 if fresh else layer.columns,
                    sums, layer.gradient, layer.columns, layer.inputs, layer.columns, rows,
                )  # fmt: skip
            if layer.inputs > 0 and (inputs_too or not layer.first):
                # If another chain has reached the input before, this chain's gradient is added.
                again = layer.first and reached > 0
                reached += layer.first
                multiply(
                    deltas, layer.delta, layer.row, 1,
                    work.packed, layer.transposed, layer.outputs * PANEL, PANEL,
                    deltas if again else work.packed, layer.source_delta if again else 0,
                    layer.source_row if again else 0,
                    deltas, layer.source_delta, layer.source_row, rows, padded(layer.inputs), layer.outputs,
                )  # fmt: skip

        if weights_too and rows > 0:
            work.fresh[0] = 0

    packing = (pack_panels, pack_transposed, pack_part, pack)
    norms = (normalise, descend_norm) if layer_norm else ()
    kernels = (multiply, *packing, add_columns, clear, unpack, activate, descend, *norms, forward, backward)
    return Passes(kernels, pack, forward, backward, clear, unpack)
