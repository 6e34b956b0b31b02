"""All-reduce by NCCL over ranks with one GPU each: within CUDA graphs, and never through the host."""

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
    """NCCL `program.reducing.Reducer`: adds up tensors on the GPUs."""

    def __init__(self, ranks: Ranks, number: int) -> None:
        """Connect the ranks of torch.distributed; this rank has GPU `number`."""
        self.rank, self.size, self._ranks = ranks.rank, ranks.size, ranks
        self._group = _group(number)

    def sum(self, array: NDArray[Any]) -> None:
        """Add up an array on the host, as without GPUs."""
        self._ranks.sum(array)

    def sum_tensor(self, tensor: torch.Tensor) -> None:
        """Add up a tensor on this GPU over all ranks, in place, on the current stream."""
        distributed.all_reduce(tensor, group=self._group)


def have_own_gpus(ranks: Ranks, number: int) -> bool:
    """Return whether NCCL can be used: each rank has a GPU that no other rank has."""
    if not distributed.is_nccl_available():
        return False
    own = hashlib.sha256(str(torch.cuda.get_device_properties(number).uuid).encode()).digest()
    told = np.zeros(ranks.size)
    told[ranks.rank] = 1 + int.from_bytes(own[:6], "big")  # 48 bits, exact in a double
    ranks.sum(told)
    return len(set(told.tolist())) == ranks.size


@cache
def _group(number: int) -> Any:
    """Return the connected group of all ranks; connections must not be made within a graph."""
    torch.cuda.set_device(number)
    group = distributed.new_group(backend="nccl", timeout=PATIENCE)
    distributed.all_reduce(torch.zeros(1, device=f"cuda:{number}"), group=group)
    torch.cuda.synchronize()
    return group
