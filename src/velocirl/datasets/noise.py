"""Action noise for recording: data then covers more than one policy's actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space

from velocirl.datasets.collecting import inside
from velocirl.engine.action_parts import as_given, parts_of


class Noise:
    """Noise: Gaussian on numbers, as a fraction of half their range; a random choice with that probability."""

    def __init__(self, space: Space[Any], share: float, seed: int | None) -> None:
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"noise is a share of the range of actions, from 0 to 1, got {share}")
        for part in parts_of(space):
            if share and isinstance(part.space, Box) and not part.space.is_bounded():
                raise ValueError(f"noise is a share of the range of actions, and {part.space} has none: leave it out")
        self._space, self._share, self._rng = space, share, np.random.default_rng(seed)

    def __call__(self, actions: Any) -> Any:
        """Return noisy actions of all environments."""
        if not self._share:
            return actions
        parts = {
            part.name: self._changed(part, np.asarray(inside(actions, part.path))) for part in parts_of(self._space)
        }
        return as_given(self._space, parts)  # pyright: ignore[reportArgumentType] - by their names, as of records

    def _changed(self, part: Any, values: Any) -> Any:
        space, values = part.space, np.asarray(values)
        if isinstance(space, Box):
            half = (space.high.astype(np.float64) - space.low) / 2
            moved = values + self._share * half * self._rng.standard_normal(values.shape)
            return np.clip(moved, space.low, space.high).astype(space.dtype)
        counts = np.asarray(part.counts).reshape(part.shape)
        others = self._rng.integers(0, np.broadcast_to(counts, values.shape)) + np.reshape(part.starts, part.shape)
        return np.where(self._rng.random(values.shape) < self._share, others, values).astype(space.dtype)
