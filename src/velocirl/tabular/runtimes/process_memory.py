"""Memory shared by processes: arrays in one unnamed file, which needs no cleanup."""

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
    """Location of an array in the file, for another process to map."""

    start: int
    shape: tuple[int, ...]
    dtype: Any


class SharedMemory:
    """Allocator of shared arrays; their space is released when no reference in this process is left."""

    def __init__(self) -> None:
        self.descriptor = open_memory()
        weakref.finalize(self, os.close, self.descriptor)
        self._size = 0
        self._regions: dict[int, Region] = {}  # by address of the array

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Allocate an array of zeros."""
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
        """Return the location of an array from `allocate`."""
        return self._regions[array.ctypes.data]


def attach(descriptor: int, region: Region) -> NDArray[Any]:
    """Map an array of another process, which has the file open at this descriptor."""
    return _map(descriptor, region)[1]


def _bytes(region: Region) -> int:
    return max(math.prod(region.shape) * region.dtype.itemsize, 1)


def _map(descriptor: int, region: Region) -> tuple[mmap.mmap, NDArray[Any]]:
    memory = mmap.mmap(descriptor, _bytes(region), offset=region.start)
    return memory, np.ndarray(region.shape, region.dtype, memory)


def _give_back(memory: mmap.mmap, regions: dict[int, Region], address: int, owner: int) -> None:
    """Release the pages: other processes that map them have a successor or are about to end. Forks do nothing."""
    del regions[address]
    if hasattr(mmap, "MADV_REMOVE") and os.getpid() == owner:
        memory.madvise(mmap.MADV_REMOVE)
