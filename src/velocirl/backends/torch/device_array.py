"""Arrays of any NumPy type in torch's GPU memory: records, and types that torch does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.buffers.records import width

TYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
}


class DeviceArray:
    """Array as a view of bytes; a field of records is a tensor that shares the memory."""

    def __init__(
        self,
        memory: torch.Tensor,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        start: int = 0,
    ) -> None:
        self._memory, self._strides, self._start = memory, strides, start  # flat bytes; strides and start are in bytes
        self.dtype, self.shape = dtype, shape

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: np.dtype[Any], device: torch.device) -> DeviceArray:
        """Allocate an array of zeros, aligned to 256 bytes."""
        memory = torch.zeros(int(np.prod(shape)) * dtype.itemsize, dtype=torch.uint8, device=device)
        return cls(memory, dtype, shape, packed_strides(shape, dtype))

    @classmethod
    def of(cls, rows: torch.Tensor, dtype: np.dtype[Any]) -> DeviceArray:
        """View rows (..., numbers) of a tensor as records, each of the size of a row."""
        memory, shape = rows.detach().reshape(-1).view(torch.uint8), tuple(rows.shape[:-1])
        return cls(memory, dtype, shape, packed_strides(shape, dtype))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        address = self._memory.data_ptr() + self._start
        packed = self._strides == packed_strides(self.shape, self.dtype)
        return {
            "shape": self.shape, "typestr": self.dtype.str if self.dtype.names is None else f"|V{self.dtype.itemsize}",
            "data": (address, False), "strides": None if packed else self._strides, "version": 3,
        }  # fmt: skip

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: str | slice) -> Any:
        """Return a field as a tensor, or a slice of rows."""
        if isinstance(key, slice):
            first, stop, _ = key.indices(len(self))
            rows = max(stop - first, 0), *self.shape[1:]
            return DeviceArray(self._memory, self.dtype, rows, self._strides, self._start + first * self._strides[0])
        kind, offset = self._field(key)
        inner = packed_strides(kind.shape, kind.base)
        return self._tensor(kind.base, (*self.shape, *kind.shape), (*self._strides, *inner), self._start + offset)

    def _field(self, name: str) -> tuple[np.dtype[Any], int]:
        fields: Any = self.dtype.fields
        return fields[name][:2]

    def as_type(self, dtype: np.dtype[Any]) -> DeviceArray:
        """View the rows as another type, which may be smaller."""
        return DeviceArray(self._memory, dtype, self.shape, self._strides, self._start)

    def side_by_side(self, names: list[str]) -> torch.Tensor:
        """View adjacent float32 fields as a tensor (..., numbers)."""
        offset = self._field(names[0])[1]
        shape, strides = (*self.shape, width(self.dtype, names)), (*self._strides, 4)
        return self._tensor(np.dtype(np.float32), shape, strides, self._start + offset)

    def transpose(self, *axes: int) -> DeviceArray:
        """View the array with its dimensions in another order."""
        shape, strides = ([one[axis] for axis in axes] for one in (self.shape, self._strides))
        return DeviceArray(self._memory, self.dtype, tuple(shape), tuple(strides), self._start)

    def reshape(self, _: int) -> DeviceArray:
        """View all rows in one dimension."""
        return DeviceArray(self._memory, self.dtype, (int(np.prod(self.shape)),), self._strides[-1:], self._start)

    def bytes(self) -> torch.Tensor:
        """Return the memory of packed rows."""
        return self._memory[self._start : self._start + int(np.prod(self.shape)) * self.dtype.itemsize]

    def store(self, host: NDArray[Any]) -> None:
        """Overwrite the array with values of the host."""
        given = np.zeros(self.shape, self.dtype)  # zeros between the fields of records, as padding may be saved
        given[...] = host
        self.bytes().copy_(torch.from_numpy(given.reshape(-1).view(np.uint8)), non_blocking=True)

    def fetch(self) -> NDArray[Any]:
        """Return a copy on the host."""
        return self.bytes().cpu().numpy().view(self.dtype).reshape(self.shape)

    def _tensor(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...], start: int
    ) -> torch.Tensor:
        kind = TYPES[dtype]
        size, whole = dtype.itemsize, len(self._memory) // dtype.itemsize * dtype.itemsize
        memory = self._memory[:whole].view(kind)
        return torch.as_strided(memory, shape, tuple(one // size for one in strides), start // size)


def packed_strides(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the strides, in bytes, of contiguous elements."""
    return tuple(int(dtype.itemsize * np.prod(shape[k + 1 :])) for k in range(len(shape)))
