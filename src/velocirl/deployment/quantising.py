"""Quantization of weights to int8, with a scale for each output; activations stay in single precision."""

from __future__ import annotations

import dataclasses

import numpy as np

from velocirl.deployment.controller import Controller, Layer, Network, layers_in

MOST = 127  # symmetric around zero


def quantised(controller: Controller) -> Controller:
    """Return the controller with weights of a quarter of the size, each off by at most half a scale."""
    layers = tuple(_quantised(layer) for layer in layers_in(controller, "weights=int8"))
    return dataclasses.replace(controller, policy=Network(layers))


def _quantised(layer: Layer) -> Layer:
    largest = np.abs(layer.weights).max(axis=1)
    scales = np.where(largest > 0, largest / MOST, 1.0).astype(np.float32)
    whole = np.clip(np.rint(layer.weights / scales[:, None]), -MOST, MOST).astype(np.int8)
    return dataclasses.replace(layer, weights=whole, scales=scales)
