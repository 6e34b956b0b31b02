"""Weights as bytes: a network's parameters and the buffers of a torch module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_bytes(parameters: NDArray[np.float32], buffers: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Return the bytes of the parameters, followed by the buffers in their order."""
    parts = [parameters, *buffers.values()]
    return np.frombuffer(b"".join(np.ascontiguousarray(part).tobytes() for part in parts), np.uint8)


def from_bytes(
    content: NDArray[np.uint8], parameters: int, buffers: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.float32], dict[str, NDArray[Any]]]:
    """Return the first `parameters` floats, and arrays with the names, types and shapes of `buffers`."""
    start, found = 4 * parameters, {}
    for name, like in buffers.items():
        found[name] = np.frombuffer(content[start : start + like.nbytes].tobytes(), like.dtype).reshape(like.shape)
        start += like.nbytes
    return content[: 4 * parameters].view(np.float32), found


def seeing(collector: Any) -> dict[str, Any]:
    """Return the normalizer's arrays of a rollout collector, under names that no module's buffer has."""
    return {"/centre": collector.centre, "/inverse_scale": collector.inverse_scale}
