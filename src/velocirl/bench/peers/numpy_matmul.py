"""A large matrix product: the most that the cores can do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def product(size: int) -> Callable[[], object]:
    """A call that multiplies two square matrices, which is 2 size^3 operations."""
    left, right = np.random.default_rng(0).random((2, size, size), np.float32)
    into = np.empty_like(left)
    return lambda: np.matmul(left, right, out=into)
