"""What to do when a device has no memory left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SAID = ("out of memory", "out_of_memory", "unable to allocate", "memoryerror")


class DeviceMemoryError(MemoryError):
    """A device has too little memory for a batch; nothing was saved since, and nothing that was saved is lost."""


@contextmanager
def tells_of_memory(device: str, num_envs: int, horizon: int, minibatch_size: int) -> Iterator[None]:
    """Turn an error of a device without memory into one that names the batch, and what to reduce."""
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__} {error}".lower()  # torch and numba-cuda have errors of their own for it
        if isinstance(error, DeviceMemoryError) or not any(said in text for said in SAID):
            raise
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        rows = num_envs * horizon
        raise DeviceMemoryError(
            f"{device} has too little memory for a rollout of num_envs={num_envs:,} x horizon={horizon:,} = {rows:,}"
            f" samples with minibatches of {min(minibatch_size, rows):,}: reduce num_envs or minibatch_size, or take a"
            " smaller network. Checkpoints that were written are intact"
        ) from error
