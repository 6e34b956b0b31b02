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
        self._source = as_bytes(source)
        slots = [torch.empty(len(self._source), dtype=torch.uint8, pin_memory=True) for _ in range(SLOTS)]
        self._slots = cycle([(slot, torch.cuda.Event()) for slot in slots])

    def send(self, target: Any) -> None:
        """Begin a copy, after what the current stream has to do."""
        slot, sent = next(self._slots)
        sent.synchronize()  # the last but one is long done, unless the GPU is far behind
        slot.copy_(self._source)
        as_bytes(target).copy_(slot, non_blocking=True)
        sent.record()


def as_bytes(array: Any) -> torch.Tensor:
    """The memory of a packed array, of the host or of a GPU."""
    if isinstance(array, DeviceArray):
        return array.bytes()
    if isinstance(array, torch.Tensor):
        return array.detach().view(-1).view(torch.uint8)
    if not array.flags.c_contiguous:
        raise ValueError("an array that is sent to a GPU again and again must be packed: its bytes are read in place")
    return torch.from_numpy(array.reshape(-1).view(np.uint8))
