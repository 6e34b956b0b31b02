"""Memory that processes share: arrays in one file without a name, which nobody has to clean up."""

from __future__ import annotations

import math
import mmap
import os
import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.vector.host.workers import open_memory


class Region(NamedTuple):
    """Where in the file an array is, for another process to find it."""

    start: int
    shape: tuple[int, ...]
    dtype: Any


class SharedMemory:
    """Hands out arrays; their space is given back when nobody here refers to them any more."""

    def __init__(self) -> None:
        self.descriptor = open_memory()
        weakref.finalize(self, os.close, self.descriptor)
        self._size = 0
        self._regions: dict[int, Region] = {}  # by the address of the array

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Zeros."""
        region = Region(self._size, shape, np.dtype(dtype))
        pages = -(-_bytes(region) // mmap.ALLOCATIONGRANULARITY)
        self._size += pages * mmap.ALLOCATIONGRANULARITY
        os.truncate(self.descriptor, self._size)
        memory, array = _map(self.descriptor, region)
        address = array.ctypes.data
        self._regions[address] = region
        weakref.finalize(array, _give_back, memory, self._regions, address, os.getpid()).atexit = False
        return array

    def region(self, array: NDArray[Any]) -> Region:
        """Where an array that `allocate` gave is."""
        return self._regions[array.ctypes.data]


def attach(descriptor: int, region: Region) -> NDArray[Any]:
    """An array of another process, which has the file open at this descriptor."""
    return _map(descriptor, region)[1]


def _bytes(region: Region) -> int:
    return max(math.prod(region.shape) * region.dtype.itemsize, 1)


def _map(descriptor: int, region: Region) -> tuple[mmap.mmap, NDArray[Any]]:
    memory = mmap.mmap(descriptor, _bytes(region), offset=region.start)
    return memory, np.ndarray(region.shape, region.dtype, memory)


def _give_back(memory: mmap.mmap, regions: dict[int, Region], address: int, owner: int) -> None:
    """Whoever else maps it has been told of its successor, or is about to end; a fork of the owner leaves it alone."""
    del regions[address]
    if hasattr(mmap, "MADV_REMOVE") and os.getpid() == owner:
        memory.madvise(mmap.MADV_REMOVE)
