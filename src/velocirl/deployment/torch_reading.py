"""Conversion of torch modules to layers, if they consist of dense layers, norms and activations in sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from velocirl.deployment.controller import Layer, Module, Network, Norm, Vector
from velocirl.deployment.layers import Wanted, last_layer, mlp_layers
from velocirl.networks.torch.activations import activation_of
from velocirl.networks.torch.conversion import Chains, from_torch
from velocirl.networks.torch.modules import Body, Ends, Joined, Policy, Row, Several
from velocirl.networks.torch.network import TorchNetwork


def read_module(network: TorchNetwork, wanted: Wanted) -> Network | Module:
    """Return the layers of a module up to these outputs, or the module as a whole if it has other parts."""
    module = network.module
    if network.state_size:
        raise ValueError(
            f"{_called(module)} is recurrent, and what it remembers between steps no exported file keeps: train a"
            " policy without memory, such as one that sees a stack of frames"
        )
    if isinstance(module, Chains):
        return Network(mlp_layers(*from_torch(module), wanted))
    found = _stages(module)
    layers = None if found is None else _layers(found, wanted)
    return Module(_described(module), network) if layers is None else Network(layers)


def module_outputs(policy: Module, values: Vector) -> Vector:
    """Return the outputs (rows, outputs) of a module for encoded inputs (rows, inputs)."""
    return policy.network.forward(torch.from_numpy(values))[0].numpy()


def _stages(module: nn.Module) -> list[nn.Module] | None:
    """Return the modules in sequence from the input to the columns; None if the structure is different."""
    if isinstance(module, Several):  # parallel groups; the first one acts
        return _stages(module.networks[0])
    if isinstance(module, Policy):
        body = module.body
        return None if body.names != ("",) else _flat([*body.encoders, body.then, module.ends])
    if isinstance(module, Joined) and isinstance(module.features, Body):
        body = module.features
        return None if body.names != ("",) else _flat([*body.encoders, body.then, module.layers])
    return _flat([module]) if isinstance(module, nn.Sequential) else None


def _flat(modules: Sequence[nn.Module]) -> list[nn.Module]:
    found: list[nn.Module] = []
    for one in modules:
        found += _flat(list(one.children())) if isinstance(one, nn.Sequential) else [one]
    return found


def _layers(stages: Sequence[nn.Module], wanted: Wanted) -> tuple[Layer, ...] | None:
    """Return dense layers with their norms and activations; None if there are other modules."""
    found: list[Layer] = []
    dense: tuple[Vector, Vector] | None = None  # weights and biases not yet followed by an activation
    norm: Norm | None = None
    for stage in stages:
        activation = activation_of(stage)
        if isinstance(stage, (Row, nn.Identity, nn.Flatten, nn.Dropout)):
            continue  # inputs are rows already; dropout is inactive outside of training
        if isinstance(stage, (nn.Linear, Ends)):
            if dense is not None:
                found.append(Layer(*dense, "linear", norm))
            made = _dense(stage) if isinstance(stage, nn.Linear) else _ends(stage)
            if made is None:
                return None
            dense, norm = made, None
        elif isinstance(stage, nn.LayerNorm) and dense is not None and norm is None:
            norm = _norm(stage, len(dense[1]))
        elif isinstance(stage, nn.BatchNorm1d) and dense is not None and norm is None:
            dense = _folded(dense, stage)
        elif activation is not None and dense is not None:
            found.append(Layer(*dense, activation, norm))
            dense, norm = None, None
        else:
            return None
    if dense is None or norm is not None or len({one.activation for one in found} - {"linear"}) > 1:
        return None
    needed = max(column for columns in wanted for column in columns)
    return None if needed >= len(dense[1]) else (*found, last_layer(*dense, wanted))


def _dense(layer: nn.Linear) -> tuple[Vector, Vector]:
    weights = _numbers(layer.weight)
    return weights, np.zeros(len(weights), np.float32) if layer.bias is None else _numbers(layer.bias)


def _ends(ends: Ends) -> tuple[Vector, Vector]:
    """Concatenate parallel last layers to one; a free column has weights of 0."""
    weights, biases = [], []
    inputs = next(layer.in_features for layer in ends.layers if isinstance(layer, nn.Linear))
    for free, place in ends.order:
        if free:
            values = _numbers(ends.free[place])
            made = np.zeros((len(values), inputs), np.float32), values
        else:
            layer = ends.layers[place]
            assert isinstance(layer, nn.Linear)  # noqa: S101 - they hold nothing else
            made = _dense(layer)
        weights.append(made[0])
        biases.append(made[1])
    return np.concatenate(weights), np.concatenate(biases)


def _norm(layer: nn.LayerNorm, width: int) -> Norm:
    scale = np.ones(width, np.float32) if layer.weight is None else _numbers(layer.weight)
    shift = np.zeros(width, np.float32) if layer.bias is None else _numbers(layer.bias)
    return Norm(scale, shift, float(layer.eps))


def _folded(dense: tuple[Vector, Vector], layer: nn.BatchNorm1d) -> tuple[Vector, Vector]:
    """Fold a batch norm, with its current statistics, into the dense layer before it."""
    weights, biases = (one.astype(np.float64) for one in dense)
    assert layer.running_mean is not None and layer.running_var is not None  # noqa: S101, PT018 - as they are trained
    factor = 1.0 / np.sqrt(_numbers(layer.running_var) + layer.eps)
    factor = factor if layer.weight is None else factor * _numbers(layer.weight)
    shift = 0.0 if layer.bias is None else _numbers(layer.bias)
    biases = (biases - _numbers(layer.running_mean)) * factor + shift
    return (weights * factor[:, None]).astype(np.float32), biases.astype(np.float32)


def _numbers(tensor: torch.Tensor) -> Vector:
    return tensor.detach().cpu().float().numpy().copy()


def _described(module: nn.Module) -> str:
    """Return a description of a module, by its parts that are no dense layers."""
    convolutions = any(isinstance(one, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) for one in module.modules())
    return "a convolutional network" if convolutions else f"the torch module {_called(module)}"


def _called(module: nn.Module) -> str:
    return type(module).__name__
