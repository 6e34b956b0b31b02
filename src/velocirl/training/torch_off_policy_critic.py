"""Two critics as torch modules: what an action is worth after an observation, each by a network of its own.

The contract of a critic module, ours or anybody's: `forward(observation, action)` takes what a policy module takes, and
the action (rows, action_size) within [-1, 1]; it gives the two values (rows, 2), which should share no parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from velocirl.networks.encoding import Encoding
from velocirl.networks.specs import NetworkSpec
from velocirl.networks.torch_activations import activation_module
from velocirl.networks.torch_modules import Observation, Style, build_features
from velocirl.networks.torch_network import TorchNetwork, sole_output

ROWS = 3  # of a first look at a module
VALUE_GAIN = 1.0


class TorchCritic(TorchNetwork):
    """A critic module that reads rows [encoded observation | action]."""

    def _join(self, result: Any, leading: tuple[int, ...]) -> Tensor:
        return sole_output(result, (*leading, 2), self.name)

    def _step(self, inputs: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:  # noqa: ARG002 - no state
        width = self.encoding.inputs
        made = self._call(self._split(inputs[..., :width]), inputs[..., width:])
        return self._join(made, (len(inputs),)), None


class OneCritic(nn.Module):
    """The features of an observation, then dense layers that read the action beside them, then the value."""

    def __init__(self, features: nn.Module, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.features, self.layers = features, nn.Sequential(*layers)

    def forward(self, observation: Observation, action: Tensor) -> Tensor:
        """The value (rows, 1)."""
        return self.layers(torch.cat([self.features(observation), action], dim=-1))


class TwoCritics(nn.Module):
    """Two critics of the same kind with weights of their own."""

    def __init__(self, first: OneCritic, second: OneCritic) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, observation: Observation, action: Tensor) -> Tensor:
        """The values (rows, 2)."""
        return torch.cat([self.first(observation, action), self.second(observation, action)], dim=-1)


def build_critics(
    spec: NetworkSpec,
    encoding: Encoding,
    action_size: int,
    *,
    activation: str,
    initialiser: str,
    generator: np.random.Generator,
) -> TwoCritics:
    """The critics of a description: the action joins in before its dense part."""
    style = Style(activation, initialiser, generator)

    def one() -> OneCritic:
        features, size, widths = build_features(spec, encoding, style)
        layers: list[nn.Module] = []
        size += action_size
        for width in widths:
            layers += [style.linear(size, width), activation_module(activation)]
            size = width
        return OneCritic(features, [*layers, style.linear(size, 1, VALUE_GAIN)])

    return TwoCritics(one(), one())


def check_critic(network: TorchCritic, action_size: int, name: str) -> None:
    """Refuse a critic module that gives no two values, or whose values cannot be improved upon."""
    if not network.num_parameters:
        raise ValueError(f"{name} has no parameters to learn: give it layers, and leave requires_grad on")
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand((ROWS, network.encoding.inputs + action_size), generator=generator).to(network.device)
    with network.reading_back():
        outputs, _ = network.forward(inputs)
        if not network.depends_on_parameters:
            raise ValueError(f"{name} depends on no parameter: let gradients through, without detach() or no_grad()")
        slopes = network.input_gradient(torch.ones_like(outputs))[:, network.encoding.inputs :]
    network.clear()
    if not bool(torch.isfinite(outputs).all()):
        raise ValueError(f"{name} gives values that are not finite for observations between 0 and 1")
    if not bool(slopes.any()):
        raise ValueError(f"{name} does not depend on the action: read it, and let gradients through to it")
