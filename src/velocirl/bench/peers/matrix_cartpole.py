"""CartPole whose steps multiply matrices, like a simulator's; imports nothing of velocirl."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class MatrixCartPole(gymnasium.Wrapper):
    """Gymnasium's CartPole with a product of two matrices before each step, by NumPy's BLAS."""

    def __init__(self, size: int = 256) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._matrix = np.random.default_rng(0).standard_normal((size, size))
        self._product = np.zeros((size, size))

    def step(self, action: Any) -> Any:
        """Multiply the matrices, then step."""
        np.matmul(self._matrix, self._matrix, out=self._product)
        return self.env.step(action)
