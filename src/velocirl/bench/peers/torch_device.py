"""The most that a GPU can do by torch: large matrix products, and copies within its memory."""

from __future__ import annotations

from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports] - where installed


def product(size: int, repeats: int) -> Callable[[], object]:
    """A call that multiplies two square matrices some times, in TF32 as training does."""
    torch.backends.cuda.matmul.allow_tf32 = True
    left, right = torch.rand(2, size, size, device="cuda")
    into = torch.empty_like(left)

    def call() -> None:
        for _ in range(repeats):
            torch.mm(left, right, out=into)
        torch.cuda.synchronize()

    return call


def copy(size: int, repeats: int) -> Callable[[], object]:
    """A call that copies so many bytes from one place of the device to another some times."""
    source = torch.zeros(size, dtype=torch.uint8, device="cuda")
    into = torch.empty_like(source)

    def call() -> None:
        for _ in range(repeats):
            into.copy_(source)
        torch.cuda.synchronize()

    return call
