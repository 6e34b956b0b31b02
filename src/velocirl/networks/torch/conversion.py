"""Conversion between the native multilayer perceptron and standard torch modules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from velocirl.networks.activations import ACTIVATIONS
from velocirl.networks.layer_norm import EPSILON
from velocirl.networks.mlp import MLP, Chain, Segment
from velocirl.networks.torch.activations import activation_module, activation_of

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise ImportError('velocirl.networks.torch.conversion needs torch: pip install "velocirl[torch]"') from error


class Chains(nn.Module):
    """Chains of layers that read the same input, and free columns without input, in one output row.

    `chains` has one nn.Sequential for each chain of the plan: nn.Linear, nn.LayerNorm if the plan has layer norms, and
    activations. `free` has the free columns of each chain, such as log standard deviations.
    """

    def __init__(self, mlp: MLP) -> None:
        super().__init__()
        self.mlp = mlp
        self.chains = nn.ModuleList(_layers(mlp, chain) for chain in mlp.chains)
        self.free = nn.ParameterList(nn.Parameter(torch.zeros(_size(chain, free=True))) for chain in mlp.chains)
        hanging_first = sorted((one.free is not None, place) for place, one in enumerate(_segments(mlp)))
        ordered = [_segments(mlp)[place] for _, place in hanging_first]
        columns = [column for one in ordered for column in range(one.column, one.column + one.size)]
        self._order = np.argsort(columns).tolist()  # position of each column of the output row

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs (rows, outputs) for inputs (rows, inputs)."""
        pairs = zip(self.chains, self.mlp.chains, strict=True)
        hanging = [layers(inputs) for layers, chain in pairs if _size(chain, free=False)]
        free = [columns.expand(len(inputs), -1) for columns in self.free]
        return torch.cat([*hanging, *free], dim=1)[:, self._order]

    def norms(self) -> list[nn.LayerNorm | None]:
        """Return the norm of each layer, in the order of the plan."""
        found: list[nn.LayerNorm | None] = []
        for layers, columns in zip(self.chains, self.free, strict=True):
            for layer in layers.children():
                if isinstance(layer, nn.Linear):
                    found.append(None)
                elif isinstance(layer, nn.LayerNorm):
                    found[-1] = layer
            found += [None] if len(columns) else []
        return found

    def places(self) -> list[tuple[Tensor | None, Tensor]]:
        """Return weights (outputs, inputs), or None, and biases of each layer, in the order of the plan."""
        found: list[tuple[Tensor | None, Tensor]] = []
        for layers, columns in zip(self.chains, self.free, strict=True):
            found += [(layer.weight, layer.bias) for layer in layers.children() if isinstance(layer, nn.Linear)]
            if len(columns):
                found.append((None, columns))
        return found


def to_torch(mlp: MLP, parameters: NDArray[np.float32]) -> Chains:
    """Return the network as a module of nn.Linear, nn.LayerNorm and activations, with these parameters."""
    if parameters.shape != (mlp.num_parameters,):
        raise ValueError(f"parameters must be {mlp.num_parameters} numbers, got an array {parameters.shape}")
    module, parameters = Chains(mlp), np.array(parameters, np.float32)
    with torch.no_grad():
        for (weights, biases), (weight, bias) in zip(mlp.layers(parameters), module.places(), strict=True):
            bias.copy_(torch.from_numpy(biases))
            if weight is not None:
                weight.copy_(torch.from_numpy(weights).T)
        for norm, layer in zip(mlp.norms(parameters), module.norms(), strict=True):
            if norm is not None and layer is not None:
                layer.weight.copy_(torch.from_numpy(norm[0]))
                layer.bias.copy_(torch.from_numpy(norm[1]))
    return module


def from_torch(module: nn.Module) -> tuple[MLP, NDArray[np.float32]]:
    """Return plan and parameters of an nn.Sequential of nn.Linear and activations, or of a module from `to_torch`.

    An nn.LayerNorm may follow each nn.Linear but the last: all of them, or none.
    """
    if isinstance(module, Chains):
        return module.mlp, _flat(module.places(), module.norms())
    if not isinstance(module, nn.Sequential):
        raise TypeError(
            f"only an nn.Sequential of nn.Linear and activations, or what to_torch gave, can be converted, not"
            f" {type(module).__name__}"
        )
    linears: list[nn.Linear] = []
    norms: list[nn.LayerNorm | None] = []  # one entry for each of the linears
    activations: list[str] = []  # after each of the linears but the last
    for name, layer in module.named_children():
        if isinstance(layer, nn.Linear):
            if len(activations) < len(linears):  # two products without anything between them
                activations.append("linear")
            linears.append(layer)
            norms.append(None)
            continue
        if isinstance(layer, nn.LayerNorm):
            if not linears or norms[-1] is not None or len(activations) == len(linears):
                raise ValueError(f"layer {name} is {layer}: it must come between an nn.Linear and its activation")
            _check_norm(name, layer, linears[-1].out_features)
            norms[-1] = layer
            continue
        activation = activation_of(layer)
        if activation is None:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"layer {name} is {layer}, which no native network has: use nn.Linear and {known}")
        if len(activations) >= len(linears):
            raise ValueError(f"layer {name} is {layer}: an activation must follow an nn.Linear")
        activations.append(activation)
    if not linears or len(activations) == len(linears):
        raise ValueError("the last layer must be an nn.Linear, since a native network's outputs are not activated")
    if norms[-1] is not None:
        raise ValueError("the last layer must be an nn.Linear, since a native network's outputs are not normalised")
    if len({norm is None for norm in norms[:-1]}) > 1:
        raise ValueError("a native network has an nn.LayerNorm after each of its hidden layers, or after none")
    if len(set(activations)) > 1:
        raise ValueError(f"a native network has one activation for all layers, got {', '.join(activations)}")
    sizes = [linears[0].in_features, *(layer.out_features for layer in linears)]
    activation = activations[0] if activations else "linear"
    mlp = MLP.of(sizes, activation, "orthogonal", layer_norm=norms[0] is not None)
    return mlp, _flat([(layer.weight, layer.bias) for layer in linears], norms)


def _check_norm(name: str, norm: nn.LayerNorm, width: int) -> None:
    """Raise if a native network would compute the norm differently."""
    if tuple(norm.normalized_shape) != (width,) or norm.eps != EPSILON:
        raise ValueError(
            f"layer {name} is {norm}: a native network normalises all {width} outputs of the layer before it, with"
            f" eps={EPSILON}"
        )


def _layers(mlp: MLP, chain: Chain) -> nn.Sequential:
    layers: list[nn.Module] = []
    width = mlp.inputs
    for size in chain.hidden:
        norm = [nn.LayerNorm(size, EPSILON)] if mlp.layer_norm else []
        layers += [_linear(width, size), *norm, activation_module(mlp.activation)]
        width = size
    hanging = _size(chain, free=False)
    return nn.Sequential(*layers, *([_linear(width, hanging)] if hanging else []))


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # draws no initial weights


def _segments(mlp: MLP) -> list[Segment]:
    return [one for chain in mlp.chains for one in chain.segments]


def _size(chain: Chain, *, free: bool) -> int:
    return sum(one.size for one in chain.segments if (one.free is not None) == free)


def _flat(
    layers: Sequence[tuple[Tensor | None, Tensor | None]], norms: Sequence[nn.LayerNorm | None]
) -> NDArray[np.float32]:
    parts: list[NDArray[np.float32]] = []
    for (weight, bias), norm in zip(layers, norms, strict=True):
        if weight is not None:
            parts.append(_numbers(weight).T.ravel())
        outputs = 0 if weight is None else len(weight)
        parts.append(np.zeros(outputs, np.float32) if bias is None else _numbers(bias))
        if norm is not None:  # without parameters of its own, or without a bias, it has gains of 1 and shifts of 0
            parts.append(np.ones(outputs, np.float32) if norm.weight is None else _numbers(norm.weight))
            parts.append(np.zeros(outputs, np.float32) if norm.bias is None else _numbers(norm.bias))
    return np.concatenate(parts)


def _numbers(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().cpu().float().numpy()
