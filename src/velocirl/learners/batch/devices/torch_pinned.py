"""Copies from the host to a GPU through page-locked memory: nobody waits for them, and what was sent may change then.

A copy from memory that is not page-locked waits until the GPU has done everything before it.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.learners.batch.devices.device_array import DeviceArray

SLOTS = 2  # places to send from: one is filled while the other is on its way


class PinnedCopy:
    """Sends what an array of the host holds, again and again."""

    def __init__(self, source: NDArray[Any] | torch.Tensor) -> None:
        self._source = source.numpy() if isinstance(source, torch.Tensor) else source
        # Of zeros, which stay between the fields of records: what is sent may be saved.
        made = [torch.zeros(self._source.nbytes, dtype=torch.uint8, pin_memory=True) for _ in range(SLOTS)]
        self._slots = cycle([(slot, as_array(slot, self._source), torch.cuda.Event()) for slot in made])

    def send(self, target: Any) -> None:
        """Begin a copy, after what the current stream has to do."""
        slot, array, sent = next(self._slots)
        sent.synchronize()  # the last but one is long done, unless the GPU is far behind
        array[...] = self._source
        memory = target.bytes() if isinstance(target, DeviceArray) else target.detach().view(-1).view(torch.uint8)
        memory.copy_(slot, non_blocking=True)
        sent.record()


def as_array(memory: torch.Tensor, like: NDArray[Any]) -> NDArray[Any]:
    """Bytes of the host as a packed array of the same type and shape as another."""
    return memory.numpy().view(like.dtype).reshape(like.shape) if like.size else np.empty_like(like)
