"""Peak performance of a GPU by torch: large matrix products, and copies within its memory."""

from __future__ import annotations

from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports] - where installed


def product(size: int, repeats: int) -> Callable[[], object]:
    """Return a call that multiplies two square matrices `repeats` times, in TF32 as training does."""
    torch.backends.cuda.matmul.allow_tf32 = True
    left, right = torch.rand(2, size, size, device="cuda")
    into = torch.empty_like(left)

    def call() -> None:
        for _ in range(repeats):
            torch.mm(left, right, out=into)
        torch.cuda.synchronize()

    return call


def copy(size: int, repeats: int) -> Callable[[], object]:
    """Return a call that copies `size` bytes within the device's memory, `repeats` times."""
    source = torch.zeros(size, dtype=torch.uint8, device="cuda")
    into = torch.empty_like(source)

    def call() -> None:
        for _ in range(repeats):
            into.copy_(source)
        torch.cuda.synchronize()

    return call
