"""What to do when a device has no memory left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class DeviceMemoryError(MemoryError):
    """A device has too little memory for a batch; nothing was saved since, and nothing that was saved is lost."""


@contextmanager
def tells_of_memory(device: str, num_envs: int, horizon: int, minibatch_size: int) -> Iterator[None]:
    """Turn an error of a device without memory into one that names the batch, and what to reduce."""
    try:
        yield
    except (torch.cuda.OutOfMemoryError, RuntimeError, MemoryError) as error:
        text = f"{type(error).__name__} {error}".lower()
        if isinstance(error, DeviceMemoryError) or not ("out of memory" in text or "out_of_memory" in text):
            raise
        torch.cuda.empty_cache()
        rows = num_envs * horizon
        raise DeviceMemoryError(
            f"{device} has too little memory for a rollout of num_envs={num_envs:,} x horizon={horizon:,} = {rows:,}"
            f" samples with minibatches of {min(minibatch_size, rows):,}: reduce num_envs or minibatch_size, or take a"
            " smaller network. Checkpoints that were written are intact"
        ) from error
