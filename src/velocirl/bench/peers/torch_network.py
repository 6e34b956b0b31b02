"""A multilayer perceptron of torch, for one row."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch  # pyright: ignore[reportMissingImports] - a peer, where installed


def forward(*sizes: int) -> Callable[[], object]:
    """A call that sends one row, a tensor already, through layers of these sizes with ReLU between them."""
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    network, row = torch.nn.Sequential(*layers[:-1]), torch.full((1, sizes[0]), 0.1)

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return network(row)

    return call
