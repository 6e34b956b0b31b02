"""Layers of a native network up to the outputs from which an action is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.deployment.controller import Layer, Norm
from velocirl.networks.layer_norm import EPSILON
from velocirl.networks.mlp import MLP

Wanted = Sequence[Sequence[int]]  # for each output, the columns to average


def mlp_layers(mlp: MLP, parameters: NDArray[np.float32], wanted: Wanted) -> tuple[Layer, ...]:
    """Return the layers of a native network up to these outputs, each the mean of some columns."""
    place_of = {}
    for segment in mlp.plan.segments:
        for k in range(int(segment["size"])):
            place_of[int(segment["column"]) + k] = int(segment["layer"]), int(segment["offset"]) + k
    last = {place_of[column][0] for columns in wanted for column in columns}
    path: list[Layer] = []
    parts = zip(mlp.plan.layers, mlp.layers(parameters), mlp.norms(parameters), strict=True)
    for place, (plan, (weights, biases), norm) in enumerate(parts):
        path = [] if plan["first"] else path
        if plan["hidden"]:
            of_layer = None if norm is None else Norm(norm[0].copy(), norm[1].copy(), EPSILON)
            path.append(Layer(weights.T.copy(), biases.copy(), mlp.activation, norm=of_layer))
        elif last == {place} and plan["inputs"]:
            offsets = [[place_of[column][1] for column in columns] for columns in wanted]
            return (*path, last_layer(weights.T, biases, offsets))
    raise ValueError("what this policy acts by comes from several chains of layers, and no file has more than one")


def last_layer(weights: Any, biases: Any, wanted: Wanted) -> Layer:
    """Return a layer that computes the means of some outputs of another, (outputs, inputs)."""
    rows = np.array([weights[columns].mean(axis=0) for columns in wanted], np.float32)
    return Layer(rows, np.array([biases[columns].mean() for columns in wanted], np.float32), "linear")
