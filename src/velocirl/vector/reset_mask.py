"""The `reset_mask` option of a reset, with Gymnasium's checks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def split_mask(options: Mapping[str, Any] | None, num_envs: int) -> tuple[NDArray[np.bool_] | None, dict[str, Any]]:
    """Return the mask `options["reset_mask"]`, or None without one, and all other options."""
    others = dict(options or {})
    mask = others.pop("reset_mask", None)
    if mask is None:
        return None, others
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"options['reset_mask'] must be a NumPy array of bool, got a {type(mask).__name__}")
    if mask.shape != (num_envs,):
        raise ValueError(f"options['reset_mask'] must have the shape ({num_envs},), got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"options['reset_mask'] must be of bool, got {mask.dtype}")
    if not mask.any():
        raise ValueError("options['reset_mask'] names no copy; give at least one True, or do not reset")
    return mask, others
