"""Records of a device's replay buffer as a file stores them: whole, each with its newest frame."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class StoredRows:
    """Whole records of a ring, fetched by slices as arrays; see `buffers.segments.Rows`."""

    def __init__(self, ring: Any, counts: NDArray[np.int64], filled: int) -> None:
        self._ring, self._counts, self._filled = ring, counts, filled
        self.dtype: np.dtype[Any] = ring.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, as of an array."""
        return (self._filled,)

    def __len__(self) -> int:
        return self._filled

    def __getitem__(self, stretch: slice, /) -> NDArray[Any]:
        first, stop, _ = stretch.indices(self._filled)
        rows, ring = np.zeros(max(stop - first, 0), self.dtype), self._ring
        if len(rows) > 0:
            stored = ring.device.fetch(ring.rows[first:stop])
            for name in stored.dtype.names or ():
                rows[name] = stored[name]
            if ring.frames is not None:
                rows["observation"] = ring.frames.observations(self._counts, first, stop)
        return rows
