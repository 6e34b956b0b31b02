"""Large matrix product: the peak performance of the cores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def product(size: int) -> Callable[[], object]:
    """Return a call that multiplies two square matrices: 2 size^3 operations."""
    left, right = np.random.default_rng(0).random((2, size, size), np.float32)
    into = np.empty_like(left)
    return lambda: np.matmul(left, right, out=into)
