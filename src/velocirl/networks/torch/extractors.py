"""Features extractors as in Stable-Baselines3: a module class, created for an observation space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from velocirl.networks.declared import Groups
from velocirl.networks.torch.activations import activation_module
from velocirl.networks.torch.modules import Ends, Observation, Style

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise ImportError('velocirl.networks.torch.extractors needs torch: pip install "velocirl[torch]"') from error


class OnFeatures(nn.Module):
    """Features of an observation, then separate layers for each group of columns, with concatenated outputs."""

    def __init__(self, features: nn.Module, ends: Sequence[nn.Module], turned: Sequence[str]) -> None:
        super().__init__()
        self.features, self.ends = features, nn.ModuleList(ends)
        self.turned = tuple(turned)  # parts that are channels-last images; "" for an unstructured observation

    def forward(self, observation: Observation, *more: Tensor) -> Tensor:
        """Return the output rows (rows, outputs)."""
        if isinstance(observation, Tensor):
            seen: Observation = observation.movedim(-1, 1) if self.turned else observation
        else:
            seen = {name: part.movedim(-1, 1) if name in self.turned else part for name, part in observation.items()}
        row = torch.cat([self.features(seen), *more], dim=-1)
        return torch.cat([end(row) for end in self.ends], dim=-1)


def build_on_features(
    kind: type[Any],
    arguments: Mapping[str, Any],
    space: Space[Any],
    groups: Groups,
    hidden: Sequence[Sequence[int]],
    *,
    extra: int,
    style: Style,
) -> OnFeatures:
    """Create a class's module for an observation space with channels-first images, and the layers after it."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    turned = [name for name, part in parts.items() if _channels_last(part)]
    shown = {name: _turned(part) if name in turned else part for name, part in parts.items()}
    with torch.random.fork_rng(devices=[]):  # initial values depend on the seed alone
        torch.manual_seed(int(style.generator.integers(2**31)))
        features = kind(spaces.Dict(shown) if isinstance(space, spaces.Dict) else shown[""], **arguments)
    size = getattr(features, "features_dim", None)
    if not isinstance(features, nn.Module) or not isinstance(size, int):
        raise TypeError(f"{kind.__qualname__} must be a torch.nn.Module with features_dim, the number of its features")
    ends = []
    for columns, widths in zip(groups, hidden, strict=True):
        layers, before = [], size + extra
        for width in widths:
            layers += [style.linear(before, width), activation_module(style.activation)]
            before = width
        ends.append(nn.Sequential(*layers, Ends(before, columns, style)))
    return OnFeatures(features, ends, turned)


def _channels_last(space: Space[Any]) -> bool:
    """Return whether observations are images whose smallest dimension, the channels, is the last one."""
    image = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3
    return image and int(np.argmin(space.shape or ())) == 2


def _turned(space: Any) -> spaces.Box:
    low, high = (np.moveaxis(bound, -1, 0) for bound in (space.low, space.high))
    return spaces.Box(low, high, dtype=space.dtype)
