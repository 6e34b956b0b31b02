"""Multilayer perceptron in torch: forward pass, and forward and backward pass, for one row or many."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch  # pyright: ignore[reportMissingImports] - a peer, where installed


def layers_of(sizes: tuple[int, ...], device: str = "cpu") -> torch.nn.Sequential:
    """Build linear layers of these sizes with ReLU between them."""
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).to(device)


def forward(rows: int, *sizes: int) -> Callable[[], object]:
    """Return a call that passes rows, already a tensor, through layers of these sizes."""
    network, given = layers_of(sizes), torch.full((rows, sizes[0]), 0.1)

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return network(given)

    return call


def backward(rows: int, *sizes: int) -> Callable[[], object]:
    """Return a call that runs a forward pass and the backward pass from output gradients to the parameters."""
    return forward_and_backward(rows, sizes, "cpu")


def forward_and_backward(rows: int, sizes: tuple[int, ...], device: str) -> Callable[[], object]:
    """Return the call of `backward` for any device; on a GPU, it does not synchronize."""
    network = layers_of(sizes, device)
    given = torch.full((rows, sizes[0]), 0.1, device=device)
    gradient = torch.full((rows, sizes[-1]), 0.1, device=device)

    def call() -> None:
        for parameter in network.parameters():
            parameter.grad = None
        network(given).backward(gradient)

    return call
