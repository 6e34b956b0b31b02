"""A multilayer perceptron of torch: forward, and forward and backward, for one row or many."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch  # pyright: ignore[reportMissingImports] - a peer, where installed


def layers_of(sizes: tuple[int, ...], device: str = "cpu") -> torch.nn.Sequential:
    """Layers of these sizes with ReLU between them."""
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).to(device)


def forward(rows: int, *sizes: int) -> Callable[[], object]:
    """A call that sends rows, a tensor already, through layers of these sizes."""
    network, given = layers_of(sizes), torch.full((rows, sizes[0]), 0.1)

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return network(given)

    return call


def backward(rows: int, *sizes: int) -> Callable[[], object]:
    """A call that sends rows forward, and a gradient of the outputs back to the parameters."""
    return forward_and_backward(rows, sizes, "cpu")


def forward_and_backward(rows: int, sizes: tuple[int, ...], device: str) -> Callable[[], object]:
    """The same on any device; on a GPU, nobody waits for it."""
    network = layers_of(sizes, device)
    given = torch.full((rows, sizes[0]), 0.1, device=device)
    gradient = torch.full((rows, sizes[-1]), 0.1, device=device)

    def call() -> None:
        for parameter in network.parameters():
            parameter.grad = None
        network(given).backward(gradient)

    return call
