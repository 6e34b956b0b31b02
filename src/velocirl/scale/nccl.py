"""Sums over ranks each of which has a GPU of its own, by NCCL: within CUDA graphs, and never by way of the host."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed

from velocirl.scale.ranks import Ranks
from velocirl.scale.torch_ranks import PATIENCE


class NCCLReducer:
    """A `program.reducing.Reducer` that adds up what lies on GPUs there."""

    def __init__(self, ranks: Ranks, number: int) -> None:
        """Of ranks of torch.distributed, of which this one has GPU `number`."""
        self.rank, self.size, self._ranks = ranks.rank, ranks.size, ranks
        self._group = _group(number)

    def sum(self, array: NDArray[Any]) -> None:
        """What lies on the host is added up as it is without a GPU."""
        self._ranks.sum(array)

    def sum_tensor(self, tensor: torch.Tensor) -> None:
        """Add up a tensor of this GPU over all ranks, in its place, on the stream of now."""
        distributed.all_reduce(tensor, group=self._group)


def have_own_gpus(ranks: Ranks, number: int) -> bool:
    """Whether NCCL can be used: each rank has a GPU, and none has that of another."""
    if not distributed.is_nccl_available():
        return False
    own = hashlib.sha256(str(torch.cuda.get_device_properties(number).uuid).encode()).digest()
    told = np.zeros(ranks.size)
    told[ranks.rank] = 1 + int.from_bytes(own[:6], "big")  # which a double holds exactly
    ranks.sum(told)
    return len(set(told.tolist())) == ranks.size


@cache
def _group(number: int) -> Any:
    """All ranks, connected; what connects them must not be made within a graph."""
    torch.cuda.set_device(number)
    group = distributed.new_group(backend="nccl", timeout=PATIENCE)
    distributed.all_reduce(torch.zeros(1, device=f"cuda:{number}"), group=group)
    torch.cuda.synchronize()
    return group
